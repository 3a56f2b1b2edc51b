// SPDX-License-Identifier: Apache-2.0
#include "driver/atoll1/atoll1_chip.h"

#include <algorithm>
#include <utility>

#include "driver/isa/timing.h"
#include "runtime/base/log.h"

namespace atollrt {
namespace {

constexpr std::chrono::milliseconds kOpenTimeout{2000};      // all of Identify and ResetCore
constexpr std::chrono::milliseconds kRecoveryTimeout{2000};  // likewise, and for fault registers
constexpr std::chrono::milliseconds kPortResetTimeout{5000};

// The caching program's request id on the wire; no request has it.
constexpr uint32_t kCachingRequest = 0;

}  // namespace

struct Atoll1Chip::Prepared final : PreparedExecutable {
  const Executable& atoll1() const { return static_cast<const Executable&>(*executable); }

  std::vector<uint8_t> programs;  // encoded: caching, then inference
  Footprint footprint;
};

Result<std::unique_ptr<Chip>> Atoll1Chip::Open(std::unique_ptr<UsbTransport> transport,
                                               const DeviceOrigin& origin, NowFunction now) {
  ProtocolSession session(transport.get(), now);
  const Deadline deadline = now() + kOpenTimeout;
  const Result<DeviceFigures> figures = session.Identify(deadline);
  const Status status = figures.ok() ? session.ResetCore(deadline) : figures.status();
  if (!status.ok()) return Status(status).WithContext("device " + origin.name);
  return std::unique_ptr<Chip>(new Atoll1Chip(std::move(transport), std::move(now),
                                              DeviceInfo{*figures, origin, kIsaVersion}));
}

Atoll1Chip::Atoll1Chip(std::unique_ptr<UsbTransport> transport, NowFunction now, DeviceInfo info)
    : info_(std::move(info)),
      now_(std::move(now)),
      transport_(std::move(transport)),
      session_(transport_.get(), now_),
      residency_(info_.memory_bytes, info_.program_memory_bytes) {}

Result<std::unique_ptr<PreparedExecutable>> Atoll1Chip::Prepare(
    std::shared_ptr<const AnyExecutable> executable) const {
  if (executable->family != info_.family) {
    return Unsupported("'%s' is compiled for %s devices, device %s is %s", executable->name.c_str(),
                       DeviceFamilyName(executable->family), info_.name.c_str(),
                       DeviceFamilyName(info_.family));
  }
  auto prepared = std::make_unique<Prepared>();
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
  const std::lock_guard lock(mutex_);
  ATOLL_RETURN_IF_ERROR(residency_.CheckFits(prepared->footprint)
                            .WithContext(Format("'%s' can never fit on device %s", own.name.c_str(),
                                                info_.name.c_str())));
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

void Atoll1Chip::ForgetAll() {
  const std::lock_guard lock(mutex_);
  residency_.Clear();
  residents_.clear();
}

// Talking to the device.

Status Atoll1Chip::Run(const Job& job, RequestReport* report) {
  const auto& prepared = static_cast<const Prepared&>(*job.prepared);
  const Executable& executable = prepared.atoll1();
  session_.meter().Start();
  bool upload = false;
  const Placement placement = Place(prepared, &upload);
  Status status = upload ? Upload(prepared, placement, job.deadline) : Status();
  if (status.ok()) {
    const ProtocolSession::Job run{
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
    const Result<uint64_t> cycles =
        RunProgram(executable, executable.inference_program, run, job.deadline);
    status = cycles.status();
    if (cycles.ok()) report->device_cycles = *cycles;
  }
  session_.meter().Stop(report);
  report->parameter_bytes =
      executable.streamed_parameters.size() + (upload ? executable.resident_parameters.size() : 0);
  if (!status.ok()) ForgetAll();
  return status;
}

Status Atoll1Chip::Upload(const Prepared& prepared, const Placement& placement, Deadline deadline) {
  const Executable& executable = prepared.atoll1();
  Log(LogSeverity::kInfo, "device %s: uploading '%s', programs %zu bytes, parameters %zu bytes",
      info_.name.c_str(), executable.name.c_str(), prepared.programs.size(),
      executable.resident_parameters.size());
  ATOLL_RETURN_IF_ERROR(
      session_.StoreInstructions(placement.program_offset, prepared.programs, deadline));
  if (executable.caching_program.empty()) return {};
  const ProtocolSession::Job job{
      .start = {.program_offset = placement.program_offset,
                .instruction_count = static_cast<uint32_t>(executable.caching_program.size()),
                .parameter_base = placement.parameter_base,
                .activation_base = 0,
                .request_id = kCachingRequest},
      .parameters = executable.resident_parameters};
  return RunProgram(executable, executable.caching_program, job, deadline).status();
}

// The program's cycles, or the fault in it.
Result<uint64_t> Atoll1Chip::RunProgram(const Executable& executable,
                                        const std::vector<Instruction>& program,
                                        const ProtocolSession::Job& job, Deadline deadline) {
  ATOLL_ASSIGN_OR_RETURN(const Event event, session_.Run(job, deadline));
  if (event.kind == EventKind::kCompleted) return event.detail;
  ATOLL_ASSIGN_OR_RETURN(const ProtocolSession::Fault fault,
                         session_.ReadFault(now_() + kRecoveryTimeout));
  return CorruptModel("device fault %s in instruction %u (%s) of %s'%s', detail %u",
                      FaultCodeName(fault.code), fault.instruction,
                      fault.instruction < program.size()
                          ? Disassemble(program[fault.instruction]).c_str()
                          : "outside the program",
                      &program == &executable.caching_program ? "the caching program of " : "",
                      executable.name.c_str(), fault.detail);
}

Status Atoll1Chip::Recover() {
  const Status status = session_.ResetCore(now_() + kRecoveryTimeout);
  return status.ok() || status.code() == StatusCode::kCancelled ? status : Reopen();
}

Status Atoll1Chip::Reopen() {
  ForgetAll();
  ATOLL_RETURN_IF_ERROR(transport_->Reset(now_() + kPortResetTimeout));
  const Deadline deadline = now_() + kOpenTimeout;
  ATOLL_ASSIGN_OR_RETURN(const DeviceFigures figures, session_.Identify(deadline));
  ATOLL_RETURN_IF_ERROR(CheckSameShape(info_, figures));
  return session_.ResetCore(deadline);
}

}  // namespace atollrt
