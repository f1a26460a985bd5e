// For models that are larger than the disk: loaded into prepack by LD_PRELOAD, it stores output as a
// file system would that keeps zeros as holes. Space is not reserved, any is said to be free, and
// what is all zeros is not written (files are new, so it reads as zeros). Everything else is as
// ever.
//
//     gcc -O2 -shared -fPIC bench/holes.c -o holes.so
//     LD_PRELOAD=./holes.so prepack convert SOURCE -o OUT -t vllm-cpu --no-flush

#define _GNU_SOURCE
#define _LARGEFILE64_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <unistd.h>

static int is_zero(const char* bytes, size_t count) {
  return count == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, count - 1) == 0);
}

int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  (void)mode;
  return ftruncate(fd, offset + bytes);
}

ssize_t pwrite(int fd, const void* bytes, size_t count, off_t offset) {
  ssize_t (*real)(int, const void*, size_t, off_t) =
      (ssize_t(*)(int, const void*, size_t, off_t))dlsym(RTLD_NEXT, "pwrite64");
  return is_zero(bytes, count) ? (ssize_t)count : real(fd, bytes, count, offset);
}

int statvfs(const char* path, struct statvfs* found) {
  int (*real)(const char*, struct statvfs*) =
      (int (*)(const char*, struct statvfs*))dlsym(RTLD_NEXT, "statvfs64");
  const int result = real(path, found);
  if (result == 0) found->f_bfree = found->f_bavail = found->f_blocks = (fsblkcnt_t)1 << 40;
  return result;
}
