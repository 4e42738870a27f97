/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Files that are replaced as a whole; see file.h. */
#include <errno.h>
#include <fcntl.h>
#include <internal/alloc.h>
#include <internal/file.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int spri_file_directory(const char *path, const char **base)
{
	const char *slash = strrchr(path, '/');
	char *directory;
	int fd;

	*base = slash ? slash + 1 : path;
	if (!**base)
		return -EISDIR;
	directory = spri_strdup(slash ? path : ".");
	if (!directory)
		return -ENOMEM;
	if (slash)
		directory[slash == path ? 1 : slash - path] = '\0';
	fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		fd = -errno;
	spri_free(directory);
	return fd;
}

int spri_file_write(int fd, const void *data, size_t n)
{
	const uint8_t *at = data;

	while (n > 0) {
		ssize_t done = write(fd, at, n);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return -errno;
		at += done;
		n -= (size_t)done;
	}
	return 0;
}

int spri_file_replace(int directory, const char *base, spri_file_fn write, void *arg)
{
	struct stat there;
	uint64_t random;
	char name[40];
	int fd, r = spri_random_bytes(&random, sizeof random);

	if (r < 0)
		return r;
	if (fstatat(directory, base, &there, 0) == 0 && !S_ISREG(there.st_mode))
		return S_ISDIR(there.st_mode) ? -EISDIR : -EINVAL;
	snprintf(name, sizeof name, ".sparring-%016llx", (unsigned long long)random);
	fd = openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return -errno;
	r = write(fd, arg);
	if (r == 0 && fsync(fd) != 0)
		r = -errno;
	if (close(fd) != 0 && r == 0)
		r = -errno;
	if (r == 0 && renameat(directory, name, directory, base) != 0)
		r = -errno;
	if (r < 0) {
		unlinkat(directory, name, 0);
		return r;
	}
	/* Some file systems cannot sync a directory and say EINVAL. */
	return fsync(directory) != 0 && errno != EINVAL ? -errno : 0;
}
