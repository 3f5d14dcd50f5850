// Loaded before the C library: ends the process at, or fails, the n-th call that changes a store's file on
// its disk, or writes all of these calls down, so that a test can say what a power failure leaves of them.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum Fault {
  kNone,
  kExitBefore,   // the call is not made
  kExitHalfway,  // of a write, half; another call is made whole
  kFullFromNow,  // no space, from the n-th call on
  kBrokenOnce,   // an I/O error, once
};

static int fault = kNone;
static long waiting = 0;
static long seen = 0;

// The name of the file that is counted, as far as it goes.
static char counted[256] = "";

__attribute__((visibility("default"))) void arm_fault(int kind, long number, const char* name) {
  fault = kind;
  waiting = number;
  seen = 0;
  snprintf(counted, sizeof counted, "%s", name);
}

__attribute__((visibility("default"))) long calls_seen(void) {
  return seen;
}

static int is_counted_path(const char* path) {
  return counted[0] != 0 && strncmp(path, counted, strlen(counted)) == 0;
}

static int is_counted(int file, char* path, size_t room) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t length = readlink(link, path, room - 1);
  if (length < 0) {
    return 0;
  }
  path[length] = 0;
  return is_counted_path(path);
}

// Descriptor of the record, -1 for none.
static int record = -1;

__attribute__((visibility("default"))) void record_calls(int file) {
  record = file;
}

static void note(char what, const char* path, long number, const void* data, size_t size) {
  if (record >= 0) {
    dprintf(record, "%c store%s %ld %zu\n", what, path + strlen(counted), number, size);
    if (write(record, data, size) != (ssize_t)size) _exit(8);
  }
}

// What to do at this call: kNone to make it.
static int fault_now(void) {
  ++seen;
  if (fault == kNone || seen < waiting || (seen > waiting && fault != kFullFromNow)) {
    return kNone;
  }
  return fault;
}

static int failed(int kind) {
  errno = kind == kFullFromNow ? ENOSPC : EIO;
  return -1;
}

#define REAL(name)                      \
  static __typeof__(&name) real = NULL; \
  if (real == NULL) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define WRITE(name, offset_type)                                              \
  ssize_t name(int file, const void* data, size_t size, offset_type offset) { \
    REAL(name);                                                               \
    char path[4096];                                                          \
    int is_ours = is_counted(file, path, sizeof path);                        \
    int kind = is_ours ? fault_now() : kNone;                                 \
    if (kind == kExitHalfway) real(file, data, size / 2, offset);             \
    if (kind == kExitBefore || kind == kExitHalfway) _exit(9);                \
    if (kind != kNone) return failed(kind);                                   \
    if (is_ours) note('w', path, (long)offset, data, size);                   \
    return real(file, data, size, offset);                                    \
  }

WRITE(pwrite, off_t)
WRITE(pwrite64, off64_t)

// A call without data. A disk that is full still syncs, cuts and removes.
#define CALL(name, parameters, arguments, condition, what, number) \
  int name parameters {                                            \
    REAL(name);                                                    \
    char place[4096];                                              \
    const char* noted = place;                                     \
    int is_ours = (condition);                                     \
    int kind = is_ours ? fault_now() : kNone;                      \
    if (kind == kExitBefore) _exit(9);                             \
    if (kind == kBrokenOnce) {                                     \
      if ((what) == 's') note('f', noted, 0, "", 0);               \
      return failed(kind);                                         \
    }                                                              \
    int result = real arguments;                                   \
    if (kind == kExitHalfway) _exit(9);                            \
    if (is_ours) note(what, noted, (long)(number), "", 0);         \
    return result;                                                 \
  }

#define OF_FILE is_counted(file, place, sizeof place)
CALL(fsync, (int file), (file), OF_FILE, 's', 0)
CALL(fdatasync, (int file), (file), OF_FILE, 's', 0)
CALL(ftruncate, (int file, off_t size), (file, size), OF_FILE, 't', size)
CALL(ftruncate64, (int file, off64_t size), (file, size), OF_FILE, 't', size)
CALL(unlink, (const char* path), (path), is_counted_path(noted = path), 'u', 0)
