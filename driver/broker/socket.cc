// SPDX-License-Identifier: Apache-2.0
#include "driver/broker/socket.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "driver/broker/messages.h"

namespace atollrt {
namespace {

constexpr size_t kMostFds = 4;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Result<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return InvalidArgument("a broker's path has 1 to %zu bytes, '%s' has %zu",
                           sizeof(address.sun_path) - 1, path.c_str(), path.size());
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

FileDescriptor NewSocket() {
  return FileDescriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

Status Failed(const char* what, const std::string& path) {
  const int error = errno;
  const auto code =
      error == EACCES || error == EPERM ? StatusCode::kPermissionDenied : StatusCode::kNotFound;
  return {code, Format("broker at '%s': %s: %s", path.c_str(), what, strerror(error))};
}

int MillisecondsUntil(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  constexpr int64_t kMost = 1 << 30;
  return static_cast<int>(std::clamp<int64_t>(left, 0, kMost));
}

}  // namespace

std::string DefaultBrokerPath() {
  if (const char* path = getenv("ATOLL_BROKER"); path != nullptr && *path != '\0') return path;
  if (const char* folder = getenv("XDG_RUNTIME_DIR"); folder != nullptr && *folder == '/') {
    return std::string(folder) + "/atoll/broker.sock";
  }
  return "/run/atoll/broker.sock";
}

Result<Peer> PeerOf(int socket) {
  ucred credentials = {};
  socklen_t bytes = sizeof(credentials);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) {
    return DeviceLost("who is at the other end of a socket is not known: %s", strerror(errno));
  }
  Peer peer{credentials.uid, credentials.gid, credentials.pid};
  socklen_t groups_bytes = 0;  // a system that does not know has none
  if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, nullptr, &groups_bytes) != 0 &&
      errno == ERANGE) {
    peer.groups.resize(groups_bytes / sizeof(gid_t));
    if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, peer.groups.data(), &groups_bytes) != 0) {
      peer.groups.clear();
    }
  }
  return peer;
}

Result<FileDescriptor> ConnectTo(const std::string& path, Deadline deadline) {
  ATOLL_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  FileDescriptor socket = NewSocket();
  constexpr std::chrono::milliseconds kPause{5};
  while (socket.get() < 0 ||
         connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    if (socket.get() >= 0 && errno == EINTR) continue;
    if (socket.get() < 0 || errno != EAGAIN) {
      return Failed("nobody answers ('atoll broker' starts one)", path);
    }
    // So many wait already that the system keeps no more.
    if (Clock::now() >= deadline) {
      return Timeout("the broker at '%s' takes no clients: it is stopped, or very busy",
                     path.c_str());
    }
    std::this_thread::sleep_for(kPause);
  }
  return socket;
}

Result<FileDescriptor> ListenAt(const std::string& path) {
  ATOLL_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  if (const size_t slash = path.rfind('/'); slash != path.npos && slash > 0) {
    mkdir(path.substr(0, slash).c_str(), 0750);  // if it is not there; what fails, bind says
  }
  unlink(path.c_str());
  FileDescriptor socket = NewSocket();
  if (socket.get() < 0 ||
      bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return Failed("cannot listen there", path);
  }
  constexpr int kWaiting = 64;
  if (chmod(path.c_str(), 0660) != 0 || listen(socket.get(), kWaiting) != 0) {
    return Failed("cannot listen there", path);
  }
  return socket;
}

Status SendMessage(int socket, std::span<const uint8_t> message, int fd) {
  iovec part = {.iov_base = const_cast<uint8_t*>(message.data()), .iov_len = message.size()};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (fd >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
  }
  for (;;) {
    if (sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return {};
    if (errno == EINTR) continue;
    if (errno == EAGAIN) {
      return {StatusCode::kDeviceBusy, "the other end of the socket does not read"};
    }
    return DeviceLost("the other end of the socket is gone: %s", strerror(errno));
  }
}

Status ReceiveMessage(int socket, Deadline deadline, ReceivedMessage* message) {
  message->fds.clear();
  message->bytes.resize(kBrokerMessageBytes);
  pollfd ready = {.fd = socket, .events = POLLIN, .revents = 0};
  for (;;) {
    // What has come is taken without asking whether it has.
    iovec part = {.iov_base = message->bytes.data(), .iov_len = message->bytes.size()};
    msghdr header = {};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(kMostFds * sizeof(int))] = {};
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    const ssize_t bytes = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (errno == EINTR) continue;
      if (poll(&ready, 1, MillisecondsUntil(deadline)) == 0) {
        message->bytes.clear();
        return {StatusCode::kTimeout, "no message came in time"};
      }
      continue;
    }
    if (bytes <= 0) {
      message->bytes.clear();
      return DeviceLost("the other end of the socket is gone%s%s", bytes < 0 ? ": " : "",
                        bytes < 0 ? strerror(errno) : "");
    }
    for (cmsghdr* part_of = CMSG_FIRSTHDR(&header); part_of != nullptr;
         part_of = CMSG_NXTHDR(&header, part_of)) {
      if (part_of->cmsg_level != SOL_SOCKET || part_of->cmsg_type != SCM_RIGHTS) continue;
      const size_t count = (part_of->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(part_of) + i * sizeof(int), sizeof(int));
        message->fds.emplace_back(fd);
      }
    }
    message->bytes.resize(static_cast<size_t>(bytes));
    if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
      return InvalidArgument("a message of more than %zu bytes, or with more than %zu files",
                             kBrokerMessageBytes, kMostFds);
    }
    return {};
  }
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::move(other.fd_)), bytes_(std::exchange(other.bytes_, {})) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

Result<SharedMemory> SharedMemory::Create(size_t bytes) {
  FileDescriptor fd(memfd_create("atoll", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd.get() < 0 || ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) {
    return ResourceExhausted("no %zu bytes of shared memory: %s", bytes, strerror(errno));
  }
  ATOLL_ASSIGN_OR_RETURN(SharedMemory shared, Map(fd.get(), bytes));
  shared.fd_ = std::move(fd);
  return shared;
}

Result<SharedMemory> SharedMemory::Map(int fd, uint64_t bytes) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return InvalidArgument("shared memory must be a memfd that is sealed against changes of size");
  }
  // What takes huge pages can lose them, although its size stays.
  struct statfs system = {};
  if (fstatfs(fd, &system) != 0 || system.f_type != TMPFS_MAGIC) {
    return InvalidArgument("shared memory must be of ordinary pages, without MFD_HUGETLB");
  }
  struct stat status = {};
  if (fstat(fd, &status) != 0 || status.st_size <= 0 ||
      static_cast<uint64_t>(status.st_size) != bytes) {
    return InvalidArgument("shared memory of %lld bytes, said to be of %llu",
                           static_cast<long long>(status.st_size),
                           static_cast<unsigned long long>(bytes));
  }
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    return ResourceExhausted("%llu bytes of shared memory cannot be mapped: %s",
                             static_cast<unsigned long long>(bytes), strerror(errno));
  }
  SharedMemory shared;
  shared.bytes_ = {static_cast<uint8_t*>(memory), static_cast<size_t>(bytes)};
  return shared;
}

}  // namespace atollrt
