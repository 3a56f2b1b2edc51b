// SPDX-License-Identifier: Apache-2.0
#include "driver/atoll1/atoll1_chip.h"

#include <algorithm>
#include <array>
#include <utility>

#include "atoll/check.h"
#include "driver/atoll1/protocol_session.h"
#include "driver/isa/timing.h"
#include "runtime/base/log.h"

namespace atollrt {
namespace {

constexpr std::chrono::milliseconds kOpenTimeout{2000};      // all of Identify and ResetCore
constexpr std::chrono::milliseconds kRecoveryTimeout{2000};  // likewise, and for fault registers
constexpr std::chrono::milliseconds kDeviceResetTimeout{5000};

}  // namespace

struct Atoll1Chip::Prepared final : PreparedExecutable {
  explicit Prepared(Atoll1Session* with) : session(with) {}
  ~Prepared() override {
    for (size_t i = 0; i < pinned.size(); ++i) {
      if (pinned[i]) session->Unpin(parts()[i]);
    }
  }
  const Executable& atoll1() const { return static_cast<const Executable&>(*executable); }
  // What is sent of it.
  std::array<std::span<const uint8_t>, 3> parts() const {
    return {programs, atoll1().resident_parameters, atoll1().streamed_parameters};
  }

  Atoll1Session* const session;
  std::vector<uint8_t> programs;  // encoded: caching, then inference
  std::array<bool, 3> pinned{};   // of parts()
  Footprint footprint;
};

Result<std::unique_ptr<Chip>> Atoll1Chip::Open(std::unique_ptr<UsbTransport> transport,
                                               const DeviceOrigin& origin, NowFunction now) {
  auto session = std::make_unique<ProtocolSession>(std::move(transport), now);
  return Open(std::move(session), origin, std::move(now));
}

Result<std::unique_ptr<Chip>> Atoll1Chip::Open(std::unique_ptr<Atoll1Session> session,
                                               const DeviceOrigin& origin, NowFunction now) {
  const Deadline deadline = now() + kOpenTimeout;
  const Result<DeviceFigures> figures = session->Identify(deadline);
  const Status status = figures.ok() ? session->ResetCore(deadline) : figures.status();
  if (!status.ok()) return Status(status).WithContext("device " + origin.name);
  return std::unique_ptr<Chip>(new Atoll1Chip(std::move(session), std::move(now),
                                              DeviceInfo{*figures, origin, kIsaVersion}));
}

Atoll1Chip::Atoll1Chip(std::unique_ptr<Atoll1Session> session, NowFunction now, DeviceInfo info)
    : info_(std::move(info)),
      now_(std::move(now)),
      session_(std::move(session)),
      residency_(info_.memory_bytes, info_.program_memory_bytes) {}

Result<std::unique_ptr<PreparedExecutable>> Atoll1Chip::Prepare(
    std::shared_ptr<const AnyExecutable> executable) const {
  ATOLL_RETURN_IF_ERROR(CheckFamily(*executable, info_));
  auto prepared = std::make_unique<Prepared>(session_.get());
  prepared->executable = std::move(executable);
  const Executable& own = prepared->atoll1();
  ATOLL_RETURN_IF_ERROR(ValidateExecutable(own));
  for (const auto* program : {&own.caching_program, &own.inference_program}) {
    for (const Instruction& instruction : *program) {
      const EncodedInstruction encoded = Encode(instruction);
      prepared->programs.insert(prepared->programs.end(), encoded.begin(), encoded.end());
    }
  }
  prepared->footprint = FootprintOf(own);
  for (const Instruction& instruction : own.inference_program) {
    prepared->macs += MultiplyAccumulates(instruction);
  }
  {
    const std::lock_guard lock(mutex_);
    ATOLL_RETURN_IF_ERROR(residency_.CheckFits(prepared->footprint)
                              .WithContext(Format("'%s' can never fit on device %s",
                                                  own.name.c_str(), info_.name.c_str())));
  }
  for (size_t i = 0; i < prepared->pinned.size(); ++i) {
    prepared->pinned[i] = session_->Pin(prepared->parts()[i]);
  }
  return std::unique_ptr<PreparedExecutable>(std::move(prepared));
}

// Residency.

void Atoll1Chip::Forget(const PreparedExecutable& prepared) {
  const std::lock_guard lock(mutex_);
  residency_.Remove(prepared.id);
  std::erase(residents_, &prepared);
}

bool Atoll1Chip::IsResident(const PreparedExecutable& prepared) const {
  const std::lock_guard lock(mutex_);
  return std::find(residents_.begin(), residents_.end(), &prepared) != residents_.end();
}

uint64_t Atoll1Chip::memory_used_bytes() const {
  const std::lock_guard lock(mutex_);
  return residency_.used_bytes();
}

Placement Atoll1Chip::Place(const Prepared& prepared, bool* upload) {
  Placement placement;
  std::vector<std::string> evicted;
  {
    const std::lock_guard lock(mutex_);
    const Placement* const resident = residency_.Use(prepared.id);
    *upload = resident == nullptr;
    if (resident != nullptr) return *resident;
    std::vector<ExecutableId> ids;
    placement = residency_.Place(prepared.id, prepared.footprint, prepared.residency_set, &ids);
    std::erase_if(residents_, [&](const Prepared* other) {
      if (std::find(ids.begin(), ids.end(), other->id) == ids.end()) return false;
      evicted.push_back(other->executable->name);
      return true;
    });
    residents_.push_back(&prepared);
  }
  for (const std::string& name : evicted) {
    Log(LogSeverity::kInfo, "device %s: '%s' makes room for '%s'", info_.name.c_str(), name.c_str(),
        prepared.executable->name.c_str());
  }
  return placement;
}

// After an error: nothing is resident, or has begun.
void Atoll1Chip::ForgetAll() {
  begun_.clear();
  const std::lock_guard lock(mutex_);
  residency_.Clear();
  residents_.clear();
}

// Talking to the device.

Status Atoll1Chip::Run(const Job& job, std::span<const Job> ahead, RequestReport* report) {
  session_->meter().Start();
  ATOLL_CHECK(begun_.empty() || begun_[0].request_id == job.request_id);
  Status status = begun_.empty() ? Begin(job) : Status();
  // What began with earlier runs is at the front of `ahead`.
  while (status.ok() && begun_.size() <= ahead.size() &&
         begun_.size() < session_->jobs_in_flight_max()) {
    status = Begin(ahead[begun_.size() - 1]);
    if (status.code() != StatusCode::kResourceExhausted) continue;
    status = Status();  // later, then
    break;
  }
  if (status.ok()) {
    report->parameter_bytes = begun_[0].parameter_bytes;
    const auto& prepared = static_cast<const Prepared&>(*job.prepared);
    const Result<Atoll1Session::End> end =
        Finish(job.request_id, prepared.atoll1(), job.outputs, job.deadline);
    status = end.status();
    if (end.ok()) {
      report->device_cycles = end->event.detail;
      report->device_clock = end->clock;
      begun_.erase(begun_.begin());
    }
  }
  session_->meter().Stop(report);
  if (!status.ok()) {
    ForgetAll();
    if (const Status dead = session_->Quiesce(); !dead.ok()) {
      return DeviceLost("%s; %s", status.message().c_str(), dead.message().c_str());
    }
  }
  return status;
}

Status Atoll1Chip::Begin(const Job& job) {
  const auto& prepared = static_cast<const Prepared&>(*job.prepared);
  const Executable& executable = prepared.atoll1();
  bool upload = false;
  const Placement placement = Place(prepared, &upload);
  Begun begun{.request_id = job.request_id,
              .parameter_bytes = executable.streamed_parameters.size()};
  Atoll1Session::Job run{
      .start = {.program_offset =
                    static_cast<uint32_t>(placement.program_offset +
                                          executable.caching_program.size() * kInstructionBytes),
                .instruction_count = static_cast<uint32_t>(executable.inference_program.size()),
                .parameter_base = placement.parameter_base,
                .activation_base = 0,
                .request_id = job.request_id},
      .inputs = job.inputs,
      .parameters = executable.streamed_parameters,
      .outputs = job.outputs};
  if (upload) {
    Log(LogSeverity::kInfo, "device %s: uploading '%s', programs %zu bytes, parameters %zu bytes",
        info_.name.c_str(), executable.name.c_str(), prepared.programs.size(),
        executable.resident_parameters.size());
    begun.parameter_bytes += executable.resident_parameters.size();
  }
  if (upload && executable.caching_program.empty()) {
    run.instructions = prepared.programs;
  } else if (upload) {
    Status status = session_->Begin(
        {.start = {.program_offset = placement.program_offset,
                   .instruction_count = static_cast<uint32_t>(executable.caching_program.size()),
                   .parameter_base = placement.parameter_base,
                   .activation_base = 0,
                   .request_id = Atoll1Session::kCachingRequest},
         .instructions = prepared.programs,
         .parameters = executable.resident_parameters},
        job.deadline);
    if (!status.ok()) {
      Forget(prepared);
      return status;
    }
    if (session_->jobs_in_flight_max() == 1) {
      ATOLL_RETURN_IF_ERROR(
          Finish(Atoll1Session::kCachingRequest, executable, {}, job.deadline).status());
    }
  }
  Status status = session_->Begin(run, job.deadline);
  if (!status.ok()) {
    if (!run.instructions.empty()) Forget(prepared);
    return status;
  }
  begun_.push_back(begun);
  return status;
}

// How the oldest run ended: its cycles, or the fault in it.
Result<Atoll1Session::End> Atoll1Chip::Finish(uint32_t request_id, const Executable& executable,
                                              std::span<const std::span<uint8_t>> outputs,
                                              Deadline deadline) {
  ATOLL_ASSIGN_OR_RETURN(const Atoll1Session::End end,
                         session_->Finish(request_id, outputs, deadline));
  if (end.event.kind == EventKind::kCompleted) return end;
  const bool is_caching = end.event.request_id == Atoll1Session::kCachingRequest;
  const auto& program = is_caching ? executable.caching_program : executable.inference_program;
  ATOLL_ASSIGN_OR_RETURN(const Atoll1Session::Fault fault,
                         session_->ReadFault(now_() + kRecoveryTimeout));
  return CorruptModel(
      "device fault %s in instruction %u (%s) of %s'%s', detail %u", FaultCodeName(fault.code),
      fault.instruction,
      fault.instruction < program.size() ? Disassemble(program[fault.instruction]).c_str()
                                         : "outside the program",
      is_caching ? "the caching program of " : "", executable.name.c_str(), fault.detail);
}

void Atoll1Chip::Abandon() {
  ForgetAll();
  (void)session_->Quiesce().ok();  // which logs what fails
}

Status Atoll1Chip::Recover() {
  const Status status = session_->ResetCore(now_() + kRecoveryTimeout);
  return status.ok() || status.code() == StatusCode::kCancelled ? status : Reopen();
}

Status Atoll1Chip::Reopen() {
  ForgetAll();
  ATOLL_RETURN_IF_ERROR(session_->ResetDevice(now_() + kDeviceResetTimeout));
  const Deadline deadline = now_() + kOpenTimeout;
  ATOLL_ASSIGN_OR_RETURN(const DeviceFigures figures, session_->Identify(deadline));
  ATOLL_RETURN_IF_ERROR(CheckSameShape(info_, figures));
  return session_->ResetCore(deadline);
}

}  // namespace atollrt
