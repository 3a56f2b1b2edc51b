// SPDX-License-Identifier: Apache-2.0
//
// Core: the emulated Atoll-1 itself, as docs/isa.md and docs/protocol.md describe it. It is
// passive: the host side of the cable puts bytes in and takes bytes out, and Step lets the device
// run its next instruction. It keeps no time but its own cycle count. A host side that brings the
// streams itself, as a ring does, uses Streams, ProgramMemory and Start instead of records.
//
//                 start                    END
//       Idle ──────────────> Running ──────────────> Idle
//         │                     │
//         └──── bad record ─────┴── fault ──> Faulted ── Reset ──> Idle
//
// Everything that comes from the host is hostile: a bad record or program faults the device, and
// memory use is bounded by the profile and kQueueLimit. In a steady state the direct face allocates
// nothing; decoded and checked instructions are kept until their program memory is written again.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "atoll/status.h"
#include "driver/atoll1/protocol.h"
#include "driver/atoll1/record_parser.h"
#include "driver/emulator/check.h"
#include "driver/emulator/direct_face.h"
#include "driver/emulator/memory.h"
#include "driver/emulator/stepped_machine.h"
#include "driver/isa/instruction.h"
#include "driver/isa/memory_access.h"
#include "driver/isa/timing.h"
#include "driver/profiles/device_profile.h"
#include "driver/usb/usb_transport.h"
#include "runtime/base/thread_pool.h"
#include "runtime/kernels/cpu_features.h"

namespace atollrt {

// How the units compute: whole instructions with fast kernels, or each register in each cycle. The
// bytes and the reported cycles are the same; the stepped face, which is for small shapes, counts
// the cycles one by one.
enum class Face { kDirect, kStepped };

// How the device comes to the cycles that it reports. The last two are for measuring what that
// costs.
enum class Timekeeping {
  kOnce,     // of a program when it first runs; they are the same each time
  kEachRun,  // in each run
  kNever,    // not at all: it reports 0
};

struct CoreOptions {
  DeviceProfile profile;
  Face face = Face::kDirect;
  int threads = 1;  // that compute, the caller's included
  CpuFeatures features = kBaseline;
  WorkLimits work_limits{};                      // of the direct face
  Timekeeping timekeeping = Timekeeping::kOnce;  // of the direct face
};

class Core {
 public:
  // Most bytes of the two incoming streams together, and of the output stream, that the device
  // queues; then it leaves transfers, or the program, waiting (docs/protocol.md §3).
  static constexpr size_t kQueueLimit = size_t{64} << 20;
  // Most events it queues.
  static constexpr size_t kEventLimit = 1024;

  // kInvalidArgument for an impossible profile, kResourceExhausted for lack of host memory.
  static Result<std::unique_ptr<Core>> Create(const CoreOptions& options);
  ~Core();

  const DeviceProfile& profile() const { return options_.profile; }

  // A control request; kInvalidArgument is a stall. `data` is filled or read as the request says.
  Status Control(const ControlSetup& setup, std::span<uint8_t> data);

  // Takes bytes of bulk OUT; returns how many, which are fewer than all only when the queues are
  // full.
  size_t AcceptBulkOut(std::span<const uint8_t> bytes);

  // Where INPUT and PARAMETERS take from and OUTPUT gives to from now on; borrowed.
  struct Streams {
    ByteSource* inputs;
    ByteSource* parameters;
    ByteSink* outputs;
  };
  void set_streams(const Streams& streams) { streams_ = streams; }

  // Program memory [offset, offset + size_bytes), which it must contain, to be written right away;
  // call it anew for every write.
  std::span<uint8_t> ProgramMemory(uint32_t offset, size_t size_bytes);

  // Starts a program on a core that is not faulted; a fault if one runs, or this cannot be one.
  void Start(const StartMessage& start);

  // The schedule of the program that has completed last, if so many bytes of its inputs were there
  // before it (ScheduleOptions::bytes_ahead). Before program memory is written again.
  ScheduleSummary Summarize(uint64_t bytes_ahead) const;

  // What endpoint 81, 82 or 83 has to send; whoever takes bytes makes room for more.
  ByteQueue& outputs() { return outputs_; }
  ByteQueue& events() { return events_; }
  ByteQueue& fault_words() { return fault_words_; }

  // Executes the next instruction, or as much of it as the streams allow. False if there was
  // nothing to do: no program runs, or it waits for the host.
  bool Step();

  // Lets a Step in progress end early; the memories are then undefined, and Reset must be the next
  // call.
  void set_stop(const StopSignal& stop);

  CoreStatus status() const { return status_; }

  // Power-on state. Memories are filled with a pattern, so that nobody relies on them.
  void Reset();

  // For tests.
  const DirectArray& direct_array() const { return direct_array_; }

 private:
  // An instruction of program memory in the form in which it runs.
  struct Slot {
    Instruction instruction;
    std::optional<Segments> checked_for;  // the last check's; none before it
    uint64_t records_checked = 0;         // time of the memory, 0 never
    uint64_t execution_cycles = 0;        // valid once checked
    // The time of a program does not depend on its data. That of the one that begins here, with
    // this many instructions, is known as long as nobody has written program memory again.
    uint32_t program_length = 0;
    uint64_t program_writes = 0;  // now() of Core::program_ when it was found
    uint64_t program_cycles = 0;
  };
  enum class Progress { kDone, kSome, kNone };

  Core(const CoreOptions& options, OnChipMemory memory, OnChipMemory program);

  Status ReadRegister(const DecodedRegisterRequest& request, std::span<uint8_t> data) const;
  void ComputeTime();
  void RaiseFault(Fault fault);

  // The next instruction, checked; nullptr after a fault.
  const Slot* Fetch();
  Slot* Decoded(uint32_t number, Fault* fault);
  Fault CheckRecords(Slot& slot);
  Progress Run(const Slot& slot);
  void RunStepped(const Slot& slot);
  void Advance(const Slot& slot);
  const Slot* ChainedBehind(const Slot& slot);
  // How many bytes the instruction in progress, which moves `bytes` in all, moves now. The stepped
  // face moves one block at most, and counts its cycle when it is complete.
  size_t TransferSize(uint32_t bytes, size_t available);
  // Moves bytes for the instruction in progress, from a stream or to the output stream.
  Progress Receive(ByteSource& stream, uint32_t output_address, uint32_t bytes);
  Progress Send(uint32_t input_address, uint32_t bytes);
  Progress Complete();

  // Where the running program has its memory, and begins.
  Segments segments() const { return {start_.parameter_base, start_.activation_base}; }
  size_t first_slot() const { return start_.program_offset / kInstructionBytes; }

  const CoreOptions options_;
  ThreadPool pool_;
  OnChipMemory memory_;
  OnChipMemory program_;
  // One per instruction of program memory, or nullptr, as far as programs have been started.
  std::vector<std::unique_ptr<Slot>> slots_;
  DirectHost host_;
  DirectArray direct_array_;
  VectorUnit vector_unit_;
  std::unique_ptr<SteppedMachine> stepped_;  // instead of these, if that is the face

  RecordParser parser_;
  ByteQueue inputs_, parameters_, outputs_{kQueueLimit}, events_, fault_words_;
  Streams streams_{&inputs_, &parameters_, &outputs_};

  CoreStatus status_ = CoreStatus::kIdle;
  // The running program.
  StartMessage start_;
  uint32_t next_ = 0;              // index of its next instruction
  uint32_t transferred_ = 0;       // bytes that this one has moved
  size_t sent_ = 0;                // bytes of the output stream so far
  uint64_t stepped_cycles_ = 0;    // that this one has taken on the stepped face
  uint64_t started_at_write_ = 0;  // now() of program_
  // Of the running program: its time if that is known, else the schedule so far. The stepped face
  // keeps its own.
  std::optional<uint64_t> known_cycles_;
  Schedule schedule_;
  // The fault, if status_ says so.
  Fault fault_;
  uint32_t fault_instruction_ = 0;
  // Since reset.
  uint64_t cycles_ = 0;
  uint64_t instructions_ = 0;
};

}  // namespace atollrt
