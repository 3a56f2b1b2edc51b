// SPDX-License-Identifier: Apache-2.0
//
// The socket between a broker and a client, and memory that both have.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "runtime/base/clock.h"
#include "runtime/base/file_descriptor.h"

namespace atollrt {

// Where the broker of this user or this computer is, unless somebody says otherwise:
// $ATOLL_BROKER, $XDG_RUNTIME_DIR/atoll/broker.sock if there is such a folder, else
// /run/atoll/broker.sock.
std::string DefaultBrokerPath();

// Who is at the other end, from the kernel. In containers pid may be 0.
struct Peer {
  uid_t uid = 0;
  gid_t gid = 0;
  pid_t pid = 0;
  std::vector<gid_t> groups{};  // the others that it is in
};
Result<Peer> PeerOf(int socket);

// kNotFound if nobody listens there, kPermissionDenied, kInvalidArgument for a path that is too
// long, kTimeout if whoever listens takes nobody by then.
Result<FileDescriptor> ConnectTo(const std::string& path, Deadline deadline);
// A socket that listens at `path`, in the place of one that nobody listens at any more, for this
// user and its group (0660). Creates its folder if only that is missing.
Result<FileDescriptor> ListenAt(const std::string& path);

// One message, with `fd` unless that is negative. Never blocks: kDeviceBusy if there is no room,
// kDeviceLost if the other end is gone.
Status SendMessage(int socket, std::span<const uint8_t> message, int fd = -1);

struct ReceivedMessage {
  std::vector<uint8_t> bytes;
  std::vector<FileDescriptor> fds;
};
// Waits until `deadline`; kTimeout then, kDeviceLost if the other end is gone, kInvalidArgument for
// a message that is too long or has too many files with it. Reuses what `message` has.
Status ReceiveMessage(int socket, Deadline deadline, ReceivedMessage* message);

// Memory of a memfd, mapped.
class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  // Sealed: nobody can change its size any more.
  static Result<SharedMemory> Create(size_t bytes);
  // That of somebody else, who may close `fd` then. kInvalidArgument unless it is a memfd of that
  // size, of ordinary pages and sealed as above, so that nothing its owner does makes reading it a
  // fault.
  static Result<SharedMemory> Map(int fd, uint64_t bytes);

  std::span<uint8_t> bytes() const { return bytes_; }
  int fd() const { return fd_.get(); }  // that Create made; otherwise -1

 private:
  FileDescriptor fd_;
  std::span<uint8_t> bytes_;
};

}  // namespace atollrt
