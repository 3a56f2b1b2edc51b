// SPDX-License-Identifier: Apache-2.0
#include "serve/network/network_chip.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <limits>
#include <map>
#include <thread>
#include <utility>

#include "driver/device/residency.h"
#include "driver/isa/executable.h"
#include "driver/isa/timing.h"
#include "serve/inference/inference_server.h"
#include "serve/network/executable_model.h"

namespace atollserve {

using atollrt::Clock;
using atollrt::DeviceFamily;
using atollrt::DeviceInfo;
using atollrt::DeviceLost;
using atollrt::Executable;
using atollrt::Format;
using atollrt::Result;
using atollrt::Status;
using atollrt::StatusCode;

namespace {

// For what the server answers at once, and for an upload.
constexpr std::chrono::seconds kAnswerTimeout{5};
constexpr std::chrono::seconds kConnectTimeout{2};
constexpr std::chrono::seconds kUploadTimeout{60};
// The server gives up a request in time; this is for its answer to come.
constexpr std::chrono::seconds kGrace{2};
// Between the priorities of requests, of which the highest comes first, and the protocol's, of
// which 1 does and 0 is last.
constexpr int32_t kPriorities = 1'000'000;

// What a server says of its device, which is hostile.
class PropertyReader {
 public:
  explicit PropertyReader(const std::map<std::string, std::string>& properties)
      : properties_(properties) {}

  std::string Text(const char* name) const {
    const auto found = properties_.find(name);
    std::string text = found == properties_.end() ? "" : found->second.substr(0, 200);
    for (char& c : text) {
      if (c < ' ' || c == '\x7f') c = '?';
    }
    return text;
  }
  template <typename Number>
  void Read(const char* name, Number least, Number most, Number* value) {
    const std::string text = Text(name);
    Number read{};
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), read);
    if (text.empty() || parsed.ec != std::errc() || *parsed.ptr != '\0' || read < least ||
        read > most) {
      if (wrong_.empty()) wrong_ = Format("%s is '%s'", name, text.c_str());
      return;
    }
    *value = read;
  }
  const std::string& wrong() const { return wrong_; }

 private:
  const std::map<std::string, std::string>& properties_;
  std::string wrong_;  // the first
};

Result<DeviceInfo> DeviceInfoOf(const std::map<std::string, std::string>& properties,
                                const std::string& address) {
  constexpr uint64_t kMost = uint64_t{1} << 48;
  PropertyReader reader(properties);
  DeviceInfo info;
  const std::string family = reader.Text("family");
  if (family != DeviceFamilyName(DeviceFamily::kAtoll1)) {
    return atollrt::Unsupported(
        "the device at %s is %s, and takes no executables from other computers; let that computer "
        "run whole models: docs/serving.md",
        address.c_str(), family.empty() ? "the computer's CPU" : family.c_str());
  }
  uint64_t timeout_ms = 0, host_ns = 0;
  uint32_t emulated = 0;
  reader.Read<uint32_t>("array_rows", 1, 1 << 16, &info.array_rows);
  reader.Read<uint32_t>("array_columns", 1, 1 << 16, &info.array_columns);
  reader.Read<uint32_t>("isa_version", 1, 1 << 16, &info.isa_version);
  reader.Read<uint64_t>("memory_bytes", 1, kMost, &info.memory_bytes);
  reader.Read<uint64_t>("program_memory_bytes", 1, kMost, &info.program_memory_bytes);
  reader.Read<uint64_t>("clock_hz", 1, kMost, &info.clock_hz);
  reader.Read<uint64_t>("link_bytes_per_second", 1, kMost, &info.link_bytes_per_second);
  reader.Read<uint64_t>("request_timeout_min_ms", 0, 24 * 3600 * 1000, &timeout_ms);
  reader.Read<uint64_t>("host_ns", 0, kMost, &host_ns);
  reader.Read<uint32_t>("emulated", 0, 1, &emulated);
  if (!reader.wrong().empty()) {
    return DeviceLost("%s describes no device: its %s", address.c_str(), reader.wrong().c_str());
  }
  info.request_timeout_min = std::chrono::milliseconds(timeout_ms);
  info.host_seconds = static_cast<double>(host_ns) * 1e-9;
  info.emulated = emulated != 0;
  info.description = reader.Text("description");
  return info;
}

Result<DeviceInfo> AskDevice(OipClient* client, const std::string& address, Deadline deadline) {
  auto properties = client->Properties(std::string(kDeviceModel), deadline);
  if (properties.status().code() == StatusCode::kNotFound) {
    return atollrt::Unsupported(
        "the server at %s does not share its device; start it with --share-device",
        address.c_str());
  }
  ATOLL_RETURN_IF_ERROR(properties.status());
  return DeviceInfoOf(*properties, address);
}

uint32_t ProtocolPriority(int32_t priority) {
  if (priority <= 0) return 0;
  return static_cast<uint32_t>(std::max(kPriorities - priority, 1));
}

}  // namespace

struct NetworkChip::Prepared final : atollrt::PreparedExecutable {
  ExecutableModel model;
  // The number of the connection over which the server was seen to have it.
  mutable std::atomic<uint32_t> seen_on = 0;
};

Result<std::unique_ptr<atollrt::Chip>> NetworkChip::Open(const std::string& address,
                                                         const atollrt::DeviceOrigin& origin,
                                                         Deadline deadline) {
  ATOLL_ASSIGN_OR_RETURN(OipAccess access, AccessFromEnvironment(address));
  ATOLL_ASSIGN_OR_RETURN(std::shared_ptr<OipClient> client,
                         OipClient::Connect(address, access, deadline));
  ATOLL_ASSIGN_OR_RETURN(DeviceInfo info, AskDevice(client.get(), address, deadline));
  info.name = origin.name;
  info.note = origin.note;
  info.description += ", by the server at " + address;
  return std::unique_ptr<atollrt::Chip>(
      new NetworkChip(address, std::move(access), std::move(info), std::move(client)));
}

std::shared_ptr<OipClient> NetworkChip::client() const {
  const std::lock_guard lock(mutex_);
  return client_;
}

// ---- Executables --------------------------------------------------------------------------------

Result<std::unique_ptr<atollrt::PreparedExecutable>> NetworkChip::Prepare(
    std::shared_ptr<const atollrt::AnyExecutable> executable) const {
  ATOLL_RETURN_IF_ERROR(CheckFamily(*executable, info_));
  auto prepared = std::make_unique<Prepared>();
  const auto& own = static_cast<const Executable&>(*executable);
  ATOLL_RETURN_IF_ERROR(ValidateExecutable(own));
  ATOLL_RETURN_IF_ERROR(atollrt::Residency(info_.memory_bytes, info_.program_memory_bytes)
                            .CheckFits(FootprintOf(own))
                            .WithContext(Format("'%s' can never fit on device %s", own.name.c_str(),
                                                info_.name.c_str())));
  for (const atollrt::Instruction& instruction : own.inference_program) {
    prepared->macs += MultiplyAccumulates(instruction);
  }
  ATOLL_ASSIGN_OR_RETURN(prepared->model, MakeExecutableModel(own));
  prepared->executable = std::move(executable);
  const std::shared_ptr<OipClient> client = this->client();
  if (client == nullptr) return DeviceLost("device %s is not connected", info_.name.c_str());
  ATOLL_RETURN_IF_ERROR(Upload(client.get(), *prepared, Clock::now() + kUploadTimeout));
  return std::unique_ptr<atollrt::PreparedExecutable>(std::move(prepared));
}

Status NetworkChip::Upload(OipClient* client, const Prepared& prepared, Deadline deadline) const {
  const uint32_t connection = connection_;
  ATOLL_ASSIGN_OR_RETURN(
      const bool is_there,
      client->IsReady(prepared.model.name, std::min(deadline, Clock::now() + kAnswerTimeout)));
  if (!is_there) {
    ATOLL_RETURN_IF_ERROR(client->Load(prepared.model.name, prepared.model.file, deadline));
  }
  prepared.seen_on = connection;
  return {};
}

bool NetworkChip::IsResident(const atollrt::PreparedExecutable& prepared) const {
  return client() != nullptr && static_cast<const Prepared&>(prepared).seen_on == connection_;
}

// ---- Runs ---------------------------------------------------------------------------------------

NetworkChip::Flight* NetworkChip::FlightOf(uint32_t request_id) {
  const auto found = std::ranges::find(flights_, request_id, &Flight::request_id);
  return found == flights_.end() ? nullptr : &*found;
}

void NetworkChip::Begin(OipClient* client, const Job& job, Flight* flight) const {
  const auto& prepared = *static_cast<const Prepared*>(job.prepared);
  flight->request_id = job.request_id;
  flight->call = client->Start(prepared.model.name, prepared.model.inputs, job.inputs,
                               ProtocolPriority(job.priority), job.deadline);
}

Status NetworkChip::RunOn(OipClient* client, const Job& job, std::span<const Job> ahead,
                          atollrt::RequestReport* report) {
  const auto& prepared = *static_cast<const Prepared*>(job.prepared);
  if (!IsResident(prepared)) {
    ATOLL_RETURN_IF_ERROR(Upload(client, prepared, job.deadline));
  }
  Flight* flight = FlightOf(job.request_id);
  if (flight == nullptr) {
    flight = FlightOf(0);
    if (flight == nullptr) {
      return atollrt::InternalError("more than %zu runs have begun", flights_.size());
    }
    Begin(client, job, flight);
  }
  for (const Job& next : ahead) {
    Flight* const unused = FlightOf(0);
    if (unused == nullptr) break;
    if (FlightOf(next.request_id) == nullptr && IsResident(*next.prepared)) {
      Begin(client, next, unused);
    }
  }
  for (;;) {
    auto answer = flight->call->Await(job.deadline + kGrace);
    if (answer.ok()) {
      if (answer->outputs.size() != job.outputs.size()) {
        return DeviceLost("device %s answers with %zu outputs, not %zu", info_.name.c_str(),
                          answer->outputs.size(), job.outputs.size());
      }
      for (size_t i = 0; i < job.outputs.size(); ++i) {
        const std::span<const uint8_t> output = answer->outputs[i];
        if (output.size() != job.outputs[i].size()) {
          return DeviceLost("device %s answers with %zu bytes of output %zu, not %zu",
                            info_.name.c_str(), output.size(), i, job.outputs[i].size());
        }
        if (!output.empty()) std::memcpy(job.outputs[i].data(), output.data(), output.size());
        report->bytes_from_device += output.size();
      }
      for (const auto& input : job.inputs) report->bytes_to_device += input.size();
      report->bytes_copied = report->bytes_to_device + report->bytes_from_device;
      report->device_cycles = static_cast<uint64_t>(answer->device_cycles);
      report->queue_ns = answer->queue_ns;
      flight->request_id = 0;
      flight->call.reset();
      return {};
    }
    const bool is_missing = answer.status().code() == StatusCode::kNotFound;
    const bool is_busy = answer.status().code() == StatusCode::kDeviceBusy;
    if (!is_missing && !is_busy) return answer.status();
    if (is_missing) {  // it made room for others
      ATOLL_RETURN_IF_ERROR(Upload(client, prepared, job.deadline));
    } else {
      const Deadline again = Clock::now() + flight->call->retry_after();
      if (again >= job.deadline) return Status(StatusCode::kTimeout, answer.status().message());
      std::this_thread::sleep_until(again);
    }
    if (Clock::now() >= job.deadline) {
      return Status(StatusCode::kTimeout, answer.status().message());
    }
    Begin(client, job, flight);
  }
}

Status NetworkChip::Run(const Job& job, std::span<const Job> ahead,
                        atollrt::RequestReport* report) {
  const std::shared_ptr<OipClient> client = this->client();
  if (client == nullptr) return DeviceLost("device %s is not connected", info_.name.c_str());
  *report = {};
  const atollrt::Deadline begun = Clock::now();
  Status status = RunOn(client.get(), job, ahead, report);
  // Then nothing may be under way.
  if (!status.ok()) Abandon();
  report->compute_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begun).count();
  return status;
}

void NetworkChip::Abandon() {
  for (Flight& flight : flights_) {
    flight.call.reset();
    flight.request_id = 0;
  }
}

Status NetworkChip::Connect(Deadline deadline) {
  ATOLL_ASSIGN_OR_RETURN(std::shared_ptr<OipClient> client,
                         OipClient::Connect(address_, access_, deadline));
  ATOLL_ASSIGN_OR_RETURN(const DeviceInfo now, AskDevice(client.get(), address_, deadline));
  ATOLL_RETURN_IF_ERROR(CheckSameShape(info_, now));
  ++connection_;
  const std::lock_guard lock(mutex_);
  client_ = std::move(client);
  return {};
}

Status NetworkChip::Recover() { return Reopen(); }

Status NetworkChip::Reopen() {
  Abandon();
  {
    const std::lock_guard lock(mutex_);
    client_ = nullptr;
  }
  return Connect(Clock::now() + kConnectTimeout);
}

}  // namespace atollserve
