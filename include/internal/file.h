/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Files that are replaced as a whole: written under another name in the same directory, synced,
 * renamed over the old one. Whatever fails before the rename leaves the old file and nothing else.
 */
#ifndef SPRI_FILE_H
#define SPRI_FILE_H

#include <internal/compiler.h>

/*
 * Opens the directory of a path; *base is the last part of the path. Returns the descriptor
 * (given: close), or a negative errno: -EISDIR when the path ends with a slash.
 */
int spri_file_directory(const char *path, const char **base) SPRI_MUST;

/* Writes all n bytes. Returns 0 or a negative errno. */
int spri_file_write(int fd, const void *data, size_t n) SPRI_MUST;

/* Writes the content of a new file. Returns 0 or a negative errno. */
typedef int (*spri_file_fn)(int fd, void *arg);

/*
 * Makes or replaces `base` in an open directory by what write(fd, arg) writes. Returns 0, what
 * write returned, or a negative errno: a device or a directory is not replaced. Blocks: until the
 * disk has it.
 */
int spri_file_replace(int directory, const char *base, spri_file_fn write, void *arg) SPRI_MUST;

#endif
