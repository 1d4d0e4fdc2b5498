// Memory that another process gets as a file descriptor.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>

#include "check.h"

namespace {

constexpr size_t kBytes = 4 << 20;
constexpr auto kType = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
using Handle = CUmemGenericAllocationHandle;

size_t free_bytes() {
  size_t free_now = 0, total = 0;
  CHECK_EQ(cudaMemGetInfo(&free_now, &total), cudaSuccess);
  return free_now;
}

Handle create(bool exportable = true) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  if (exportable) prop.requestedHandleTypes = kType;
  Handle handle = 0;
  CHECK_EQ(cuMemCreate(&handle, kBytes, &prop, 0), CUDA_SUCCESS);
  return handle;
}

// The handle is not needed any more.
CUdeviceptr map(Handle handle, CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
  CUdeviceptr at = 0;
  CHECK_EQ(cuMemAddressReserve(&at, kBytes, 0, 0, 0), CUDA_SUCCESS);
  CHECK_EQ(cuMemMap(at, kBytes, 0, handle, 0), CUDA_SUCCESS);
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, flags};
  CHECK_EQ(cuMemSetAccess(at, kBytes, &access, 1), CUDA_SUCCESS);
  CHECK_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  return at;
}

void unmap(CUdeviceptr at) {
  CHECK_EQ(cuMemUnmap(at, kBytes), CUDA_SUCCESS);
  CHECK_EQ(cuMemAddressFree(at, kBytes), CUDA_SUCCESS);
}

CUresult import(int fd, Handle* handle) {
  return cuMemImportFromShareableHandle(handle, reinterpret_cast<void*>(intptr_t{fd}), kType);
}

// What the device reads there.
unsigned value(CUdeviceptr at) {
  CUdeviceptr copy = 0;
  unsigned found = 0;
  CHECK_EQ(cuMemAlloc(&copy, 4), CUDA_SUCCESS);
  CHECK_EQ(cuMemcpyAsync(copy, at, 4, nullptr), CUDA_SUCCESS);
  CHECK_EQ(cuMemcpyDtoH(&found, copy, 4), CUDA_SUCCESS);
  CHECK_EQ(cuMemFree(copy), CUDA_SUCCESS);
  return found;
}

void send_descriptor(int to, int fd) {
  char byte = 0, control[CMSG_SPACE(sizeof fd)]{};
  iovec part{&byte, 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  *rights = {CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
  std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
  CHECK_EQ(sendmsg(to, &message, 0), 1);
}

int receive_descriptor(int from) {
  int fd = -1;
  char byte = 0, control[CMSG_SPACE(sizeof fd)]{};
  iovec part{&byte, 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  CHECK_EQ(recvmsg(from, &message, MSG_CMSG_CLOEXEC), 1);
  if (cmsghdr* const rights = CMSG_FIRSTHDR(&message))
    std::memcpy(&fd, CMSG_DATA(rights), sizeof fd);
  return fd;
}

// A step of either process, when the other one has said that it has done its own.
void tell(int socket) {
  CHECK_EQ(write(socket, "x", 1), 1);
}
void await(int socket) {
  char byte;
  CHECK_EQ(read(socket, &byte, 1), 1);
}

void lend(int socket) {
  const CUdeviceptr other = map(create()), memory = map(create());
  CHECK_EQ(cuMemsetD32(other, 3, kBytes / 4), CUDA_SUCCESS);
  CHECK_EQ(cuMemsetD32(memory, 7, kBytes / 4), CUDA_SUCCESS);
  CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  Handle handle = 0;
  int fd = -1;
  CHECK_EQ(cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(memory)), CUDA_SUCCESS);
  CHECK_EQ(cuMemExportToShareableHandle(&fd, handle, kType, 0), CUDA_SUCCESS);
  CHECK_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  send_descriptor(socket, fd);
  await(socket);
  CHECK_EQ(cuMemsetD32(memory, 9, kBytes / 4), CUDA_SUCCESS);
  CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  tell(socket);
  await(socket);
  unmap(memory);
  tell(socket);
  await(socket);
}

}  // namespace

// First: a process that has used the library cannot be forked.
TEST(another_process_reads_it) {
  int ends[2];
  CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    lend(ends[1]);
    _exit(0);
  }
  close(ends[1]);
  const int fd = receive_descriptor(ends[0]);
  CHECK_EQ(cudaSetDevice(0), cudaSuccess);
  const size_t before = free_bytes();
  Handle handle = 0;
  CHECK_EQ(import(fd, &handle), CUDA_SUCCESS);
  const CUdeviceptr there = map(handle, CU_MEM_ACCESS_FLAGS_PROT_READ);
  CHECK_EQ(free_bytes(), before);  // it is charged where it was made
  CHECK_EQ(value(there), 7u);
  CHECK_EQ(value(there + kBytes - 4), 7u);
  tell(ends[0]);
  await(ends[0]);
  CHECK_EQ(value(there), 9u);
  tell(ends[0]);
  await(ends[0]);
  CHECK_EQ(value(there + kBytes / 2), 0u);  // it has been given back
  tell(ends[0]);
  int status = -1;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
  CHECK_EQ(value(there + kBytes - 4), 0u);
  unmap(there);
  CHECK_EQ(import(fd, &handle), CUDA_ERROR_OPERATING_SYSTEM);  // its process is gone
  close(fd);
  close(ends[0]);
}

TEST(handles_of_one_memory) {
  const size_t before = free_bytes();
  const Handle made = create();
  int fd = -1;
  CHECK_EQ(cuMemExportToShareableHandle(&fd, made, kType, 0), CUDA_SUCCESS);
  Handle again = 0;
  CHECK_EQ(import(fd, &again), CUDA_SUCCESS);
  close(fd);
  CUmemAllocationProp prop{};
  CHECK_EQ(cuMemGetAllocationPropertiesFromHandle(&prop, made), CUDA_SUCCESS);
  CHECK_EQ(prop.requestedHandleTypes, kType);
  CHECK_EQ(cuMemExportToShareableHandle(&fd, again, kType, 0), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuMemMap(0, 2 * kBytes, 0, again, 0), CUDA_ERROR_INVALID_VALUE);
  const CUdeviceptr one = map(made), other = map(again);
  CHECK_EQ(cuMemsetD32(one + 64, 5, 1), CUDA_SUCCESS);
  CHECK_EQ(value(other + 64), 5u);
  size_t bytes = 0;
  CUdeviceptr base = 0;
  CHECK_EQ(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, other + 64),
           CUDA_SUCCESS);
  CHECK_EQ(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, other + 64),
           CUDA_SUCCESS);
  CHECK(base == other && bytes == kBytes);
  CHECK_EQ(free_bytes(), before - kBytes);
  unmap(other);
  CHECK_EQ(value(one + 64), 5u);
  unmap(one);
  CHECK_EQ(free_bytes(), before);
}

TEST(only_what_was_made_for_it_is_exported) {
  int supported = 0, fd = -1;
  CHECK_EQ(cuDeviceGetAttribute(&supported,
                                CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 0),
           CUDA_SUCCESS);
  CHECK_EQ(supported, 1);
  const Handle plain = create(false), made = create();
  CHECK_EQ(cuMemExportToShareableHandle(&fd, plain, kType, 0), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuMemExportToShareableHandle(&fd, made, CU_MEM_HANDLE_TYPE_FABRIC, 0),
           CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuMemExportToShareableHandle(&fd, made, kType, 1), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuMemExportToShareableHandle(nullptr, made, kType, 0), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuMemExportToShareableHandle(&fd, 12345, kType, 0), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuMemRelease(plain), CUDA_SUCCESS);
  CHECK_EQ(cuMemRelease(made), CUDA_SUCCESS);
  CHECK_EQ(cuMemExportToShareableHandle(&fd, made, kType, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST(other_descriptors_are_refused) {
  struct Where {
    uint64_t magic;
    int32_t process, fd;
    uint64_t inode, offset, bytes;
  } good{}, bad{};
  const Handle made = create();
  Handle handle = 0;
  int fd = -1, pipes[2];
  CHECK_EQ(cuMemExportToShareableHandle(&fd, made, kType, 0), CUDA_SUCCESS);
  CHECK_EQ(pread(fd, &good, sizeof good, 0), static_cast<ssize_t>(sizeof good));
  const auto forged = [&](const std::function<void()>& change) {
    bad = good;
    change();
    CHECK_EQ(pwrite(fd, &bad, sizeof bad, 0), static_cast<ssize_t>(sizeof bad));
    return import(fd, &handle);
  };
  const int unsealed = memfd_create("short", MFD_CLOEXEC);
  struct stat info{};
  CHECK(ftruncate(unsealed, kBytes) == 0 && fstat(unsealed, &info) == 0);
  CHECK_EQ(forged([&] { bad.magic += 1; }), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(forged([&] { bad.offset = uint64_t{1} << 50; }), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(forged([&] { bad.bytes = ~uint64_t{0}; }), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(forged([&] { bad.bytes = 0; }), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(forged([&] { bad.inode += 1; }), CUDA_ERROR_OPERATING_SYSTEM);
  CHECK_EQ(forged([&] { bad.fd = 9999; }), CUDA_ERROR_OPERATING_SYSTEM);
  // It could be made shorter while a process reads it.
  CHECK_EQ(forged([&] { bad.fd = unsealed, bad.inode = info.st_ino, bad.offset = 0; }),
           CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(ftruncate(fd, 5), 0);
  CHECK_EQ(import(fd, &handle), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(pipe(pipes), 0);
  CHECK_EQ(import(pipes[0], &handle), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(import(-1, &handle), CUDA_ERROR_INVALID_VALUE);
  for (const int one : {fd, unsealed, pipes[0], pipes[1]}) close(one);
  CHECK_EQ(cuMemRelease(made), CUDA_SUCCESS);
}

CHECK_MAIN
