// SPDX-License-Identifier: Apache-2.0
//
// Device: the seam upward. A queue of requests for one chip, or for several of one kind:
// accelerators on USB, whether real or emulated. It knows bytes and programs, not tensors or
// operators. What it takes to run one on a chip, and to bring a chip back that fails, is below it
// (chip_keeper.h, which draws the states; chip.h).
//
// Thread safety: all calls may come from any thread. The waiter drives the wire: a thread in Wait
// that finds nobody else talking to the chip of its request takes the wire, runs that chip's next
// request from upload to completion, and gives the wire back, until its own has completed. There is
// no hidden thread.
//
// Order: requests run on a chip one after the other: those of the highest priority first, among
// equals those of the executable that has not had a turn for longest, and those of one executable
// in the order of Submit. A chip that can have several under way (Chip::jobs_in_flight_max) is
// given those that come next, too, whenever one begins: these are running from then on, whoever
// waits for them and whenever, and nothing gets in front of them; after a failure all but the one
// that failed are queued again, in their order and with their time anew. While executables that are
// on the chip have requests, too, one that is not waits for at most a few of those, so that
// executables do not push each other off the chip with every request. Each request completes
// exactly once.
//
// Several chips: executables are loaded on all of them, or, with a stage, on one; a chip that is
// away gets them when it is back. Each request goes to the chip with the fewest requests, among
// equals to the one that its executable used last, where it is still resident. A chip that is away
// gets a request again, which looks for it, when something was plugged in or out, and now and then;
// a request whose chip is lost goes to another one.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "atoll/status.h"
#include "driver/device/chip_keeper.h"
#include "driver/device/device_info.h"

namespace atollrt {

class Device {
 public:
  // A device of one chip.
  Device(std::unique_ptr<Chip> chip, ChipKeeper::Options options);
  // No call may be in progress. Requests that nobody waited for are forgotten.
  ~Device();

  // The chips of several devices as one. No call may be in progress on them, and nothing loaded.
  // kInvalidArgument if there is none, or if they differ in family, array or memory: executables
  // are compiled for one kind.
  static Result<std::unique_ptr<Device>> Join(std::vector<std::unique_ptr<Device>> devices);

  // What the first chip is; the name is that of all.
  const DeviceInfo& info() const { return info_; }
  // The best of its chips'.
  DeviceState state() const;
  DeviceHealth health() const;  // sums
  // Requests that its chips can have under way.
  size_t jobs_in_flight_max() const;

  // Checks that `executable` can run here (family, ISA version, sizes against the memories) and
  // registers it; it is uploaded when first used and stays on the chip while there is room. The
  // device shares ownership. kUnsupported for another family or ISA version, kResourceExhausted if
  // it can never fit, kDeviceLost in Lost.
  Result<ExecutableId> Load(std::shared_ptr<const AnyExecutable> executable,
                            const LoadOptions& options = {});
  // Forgets an executable. kDeviceBusy while requests for it are in progress.
  Status Unload(ExecutableId id);

  // Queues a request; the description is copied, the buffers are not. kInvalidArgument if ids or
  // sizes do not fit, kDeviceLost in Lost.
  Result<RequestId> Submit(const Request& request);
  // Blocks until the request has completed and forgets it; one Wait for each Submit. kTimeout past
  // its deadline or, on a chip that can be opened again, when its last attempt was too long
  // (chip_keeper.h says what all of them may take), kCancelled after Cancel, kCorruptModel if the
  // chip faulted, kDeviceLost if it is gone, kResourceExhausted if there is no memory for a
  // stand-in. After an error the contents of the outputs are unspecified. `report` may be nullptr
  // and is filled after errors, too.
  Status Wait(RequestId id, RequestReport* report);
  // Makes the request complete with kCancelled, unless it has completed already. One that is
  // running stays on the chip, and in Wait, until its program has ended.
  Status Cancel(RequestId id);

  // Makes its chips begin anew, those that are there, by a reset of the whole device; requests that
  // are under way are sent again. Waits for what runs. The first error of a chip that is lost by
  // it, for then requests go where they go for a lost one.
  Status Reset();

  // Tells of memory in which buffers of requests will lie, until as many calls of UnregisterMemory
  // say that none do any more. Chips that reach it themselves (on PCIe, or
  // behind a broker) then need no copies. After
  // an error, which says why it cannot be given to a chip and what to do, it is not registered, and
  // is copied; without such chips there is none. No request in progress may use what is taken back.
  Status RegisterMemory(const HostMemory& memory);
  void UnregisterMemory(std::span<uint8_t> memory);

 private:
  struct Place;
  struct Loaded;
  struct Slot;
  using Lock = std::unique_lock<std::mutex>;

  explicit Device(std::vector<std::unique_ptr<ChipKeeper>> chips);
  static Result<std::unique_ptr<Device>> Create(std::vector<std::unique_ptr<ChipKeeper>> chips);

  // With the mutex held; those that take a Lock give it up in between.
  Loaded* FindLoaded(ExecutableId id);
  Slot* FindSlot(RequestId id);
  Slot* TakeFreeSlot();
  Status Load(Lock& lock, Place* place, ExecutableId id,
              const std::shared_ptr<const AnyExecutable>& executable, const LoadOptions& options);
  Status Enqueue(Slot* slot);
  void Complete(Slot* slot, Status status);
  Slot* TakeNext(Place* place, bool* is_resident);
  bool IsTooLate(Slot* slot);
  void BeginNext(Place* place);
  void Requeue(Place* place);
  void RunNext(Lock& lock, Place* place);

  DeviceInfo info_;

  mutable std::mutex mutex_;         // never held during a transfer
  std::condition_variable changed_;  // a request completed or a wire became free
  std::vector<std::unique_ptr<Place>> places_;
  std::map<ExecutableId, std::unique_ptr<Loaded>> loaded_;
  std::vector<std::unique_ptr<Slot>> slots_;  // recycled, never freed before the device
  ExecutableId last_executable_ = 0;
  RequestId last_request_ = 0;
};

}  // namespace atollrt
