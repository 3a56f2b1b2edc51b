// SPDX-License-Identifier: Apache-2.0
#include "driver/coral/coral_pcie_chip.h"

#include <dirent.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "driver/coral/apex_link.h"
#include "driver/coral/function_link.h"
#include "runtime/base/log.h"

namespace atollrt {
namespace {

constexpr std::chrono::milliseconds kStartTimeout{8000};
constexpr std::chrono::milliseconds kHaltTimeout{2000};
constexpr std::chrono::milliseconds kPauseTimeout{1000};
constexpr std::chrono::milliseconds kStopTimeout{3000};
// Without a sign of life. Nothing takes a Coral that long.
constexpr std::chrono::milliseconds kPatience{4000};

constexpr uint64_t kAlignmentBytes = 8;           // of what the chip transfers
constexpr uint64_t kSlotBytesMax = 256ull << 20;  // of what one run needs

// Of a lane by generation, as far as it is known, and what of it gets through.
constexpr uint64_t kLaneBytesPerSecond[] = {0, 250'000'000, 500'000'000};
constexpr uint64_t kUsefulPercent = 80;

// A Coral has one lane, of the second generation at best.
uint64_t LinkBytesPerSecond(uint32_t generation) {
  return kLaneBytesPerSecond[generation == 1 ? 1 : 2] * kUsefulPercent / 100;
}

uint64_t WholePages(uint64_t bytes) {
  return (bytes + kCoralPageBytes - 1) / kCoralPageBytes * kCoralPageBytes;
}

// Where each of some things begins that lie behind each other from `*end` on, each on pages of its
// own.
class PageLayout {
 public:
  uint64_t Add(uint64_t bytes) { return std::exchange(end_, end_ + WholePages(bytes)); }
  uint64_t bytes() const { return end_; }

 private:
  uint64_t end_ = 0;
};

struct Traffic {
  uint64_t to_device = 0;
  uint64_t from_device = 0;
};
Traffic TrafficOf(const CoralProgram& program) {
  using Kind = CoralTransfer::Kind;
  Traffic traffic;
  for (const CoralTransfer& transfer : program.transfers) {
    const bool is_from = transfer.kind == Kind::kOutput || transfer.kind == Kind::kScratchOut;
    (is_from ? traffic.from_device : traffic.to_device) += transfer.bytes;
  }
  return traffic;
}

}  // namespace

// What one run under way needs: instructions and packed inputs, outputs as the chip writes them.
struct CoralPcieChip::Slot {
  bool in_use = false;
  std::unique_ptr<CoralMemory> to_chip;
  std::unique_ptr<CoralMemory> from_chip;  // nullptr: there is nothing of that kind
  std::unique_ptr<CoralMemory> scratch;    // likewise
  // That are in the instructions.
  std::vector<uint64_t> inputs, outputs;
};

struct CoralPcieChip::Prepared final : PreparedExecutable {
  const CoralExecutable& coral() const { return static_cast<const CoralExecutable&>(*executable); }

  std::unique_ptr<CoralMemory> cached_parameters, streamed_parameters;  // nullptr: none
  std::unique_ptr<CoralMemory> caching;                                 // its instructions
  std::vector<uint64_t> caching_chunks;                                 // in there
  // In Slot::to_chip and from_chip.
  std::vector<uint64_t> chunks, inputs, outputs;
  uint64_t to_chip_bytes = 0, from_chip_bytes = 0;

  // Belong to the holder of the wire, but for the first, which is there from the beginning.
  mutable std::vector<std::unique_ptr<Slot>> slots;
};

struct CoralPcieChip::Flight {
  uint32_t request_id = 0;
  Slot* slot = nullptr;
  // Of the session, when it is done.
  uint64_t retired = 0;
  uint64_t finished = 0;
  Traffic traffic;
  uint64_t parameter_bytes = 0;
  uint64_t copied_bytes = 0;
  // Those that the chip reaches where they are.
  std::vector<bool> outputs_in_place;
};

namespace {

void Patch(const CoralProgram& program, const std::vector<uint64_t>& chunks,
           const CoralMemory& memory, CoralAddressField::Base base, uint32_t index,
           uint64_t address) {
  for (const CoralAddressField& field : program.fields) {
    if (field.base != base || field.index != index) continue;
    WriteCoralAddress(
        field, address,
        memory.bytes().subspan(chunks[field.chunk], program.chunks[field.chunk].size()));
  }
}

void CopyChunks(const CoralProgram& program, const std::vector<uint64_t>& chunks,
                const CoralMemory& memory) {
  for (size_t i = 0; i < program.chunks.size(); ++i) {
    std::copy(program.chunks[i].begin(), program.chunks[i].end(),
              memory.bytes().data() + chunks[i]);
  }
}

uint64_t AddressOf(const std::unique_ptr<CoralMemory>& memory) {
  return memory != nullptr ? memory->address() : 0;
}

}  // namespace

// Opening.

Result<std::unique_ptr<Chip>> OpenCoralPcie(PcieBus* bus, const PcieDeviceInfo& device,
                                            const CoralOptions& options) {
  ATOLL_ASSIGN_OR_RETURN(auto function, bus->Open(device));
  return CoralPcieChip::Open(
      std::make_unique<CoralFunctionLink>(std::move(function), options.performance, options.now,
                                          options.name),
      options, device.address, LinkBytesPerSecond(device.link_generation));
}

Result<std::unique_ptr<Chip>> OpenApex(const std::string& node, const CoralOptions& options) {
  return CoralPcieChip::Open(
      std::make_unique<CoralApexLink>(node, options.performance, options.now, options.name),
      options, node, LinkBytesPerSecond(0));
}

std::vector<ApexDevice> ListApex(const std::string& sysfs) {
  constexpr const char kPrefix[] = "apex_";
  const std::string folder = sysfs + "/class/apex";
  std::vector<std::pair<long, ApexDevice>> found;
  const auto close = [](DIR* directory) { closedir(directory); };
  const std::unique_ptr<DIR, decltype(close)> directory(opendir(folder.c_str()), close);
  for (const dirent* entry = nullptr;
       directory != nullptr && (entry = readdir(directory.get())) != nullptr;) {
    const std::string name = entry->d_name;
    if (name.rfind(kPrefix, 0) != 0) continue;
    const auto attribute = [&](const char* file) {
      std::string text;
      const std::string path = folder + "/" + name + "/" + file;
      if (std::FILE* const stream = std::fopen(path.c_str(), "r")) {
        char line[64] = "";
        if (std::fgets(line, sizeof(line), stream) != nullptr) text = line;
        std::fclose(stream);
      }
      return text.substr(0, text.find('\n'));
    };
    found.emplace_back(std::strtol(name.c_str() + sizeof(kPrefix) - 1, nullptr, 10),
                       ApexDevice{.node = "/dev/" + name,
                                  .pci_address = attribute("pci_address"),
                                  .status = attribute("status"),
                                  .temperature_mc = std::atoi(attribute("temp").c_str())});
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<ApexDevice> devices;
  for (auto& [number, device] : found) devices.push_back(std::move(device));
  return devices;
}

Result<std::unique_ptr<Chip>> CoralPcieChip::Open(std::unique_ptr<CoralPcieLink> link,
                                                  const CoralOptions& options,
                                                  const std::string& where,
                                                  uint64_t link_bytes_per_second) {
  std::unique_ptr<CoralPcieChip> chip(
      new CoralPcieChip(std::move(link), options, where, link_bytes_per_second));
  ATOLL_RETURN_IF_ERROR(chip->Reopen());
  chip->may_reset_ = true;
  return std::unique_ptr<Chip>(std::move(chip));
}

CoralPcieChip::CoralPcieChip(std::unique_ptr<CoralPcieLink> link, const CoralOptions& options,
                             const std::string& where, uint64_t link_bytes_per_second)
    : info_(CoralDeviceInfo(options, "PCIe, " + where, link_bytes_per_second)),
      now_(options.now),
      link_(std::move(link)),
      session_(link_.get(), now_, info_.name) {}

CoralPcieChip::~CoralPcieChip() {
  if (is_up_ && !session_.Close(now_() + kHaltTimeout)) {
    (void)link_->Stop(now_() + kStopTimeout).ok();
  }
}

Status CoralPcieChip::Reopen() {
  BreakOff();
  if (!std::exchange(may_reset_, false)) {
    return DeviceLost("a reset has not helped; it has to be opened anew, with all that is mapped");
  }
  const Deadline deadline = now_() + kStartTimeout;
  ATOLL_RETURN_IF_ERROR(link_->Start(deadline));
  ATOLL_RETURN_IF_ERROR(session_.BringUp(deadline));
  is_up_ = true;
  return {};
}

// Executables.

// Memory that the chip only reads: where it is, if that is possible, else a copy.
Result<std::unique_ptr<CoralMemory>> CoralPcieChip::Share(std::span<const uint8_t> bytes) const {
  if (bytes.empty()) return std::unique_ptr<CoralMemory>();
  if (reinterpret_cast<uintptr_t>(bytes.data()) % kAlignmentBytes == 0) {
    auto mapped =
        link_->Map({const_cast<uint8_t*>(bytes.data()), bytes.size()}, DmaDirection::kToDevice);
    if (mapped.ok() || mapped.code() != StatusCode::kUnsupported) return mapped;
  }
  ATOLL_ASSIGN_OR_RETURN(auto copy, link_->Allocate(bytes.size(), DmaDirection::kToDevice));
  std::copy(bytes.begin(), bytes.end(), copy->bytes().begin());
  ATOLL_RETURN_IF_ERROR(copy->GiveToChip());
  return copy;
}

Result<std::unique_ptr<CoralPcieChip::Slot>> CoralPcieChip::MakeSlot(
    const Prepared& prepared) const {
  using Base = CoralAddressField::Base;
  const CoralExecutable& coral = prepared.coral();
  auto slot = std::make_unique<Slot>();
  ATOLL_ASSIGN_OR_RETURN(slot->to_chip,
                         link_->Allocate(prepared.to_chip_bytes, DmaDirection::kToDevice));
  if (prepared.from_chip_bytes != 0) {
    ATOLL_ASSIGN_OR_RETURN(slot->from_chip,
                           link_->Allocate(prepared.from_chip_bytes, DmaDirection::kFromDevice));
  }
  if (coral.scratch_bytes != 0) {
    ATOLL_ASSIGN_OR_RETURN(slot->scratch,
                           link_->Allocate(coral.scratch_bytes, DmaDirection::kBoth));
  }
  const auto patch = [&](Base base, uint32_t index, uint64_t address) {
    Patch(coral.inference, prepared.chunks, *slot->to_chip, base, index, address);
  };
  CopyChunks(coral.inference, prepared.chunks, *slot->to_chip);
  patch(Base::kParameters, 0, AddressOf(prepared.streamed_parameters));
  patch(Base::kScratch, 0, AddressOf(slot->scratch));
  for (uint32_t i = 0; i < prepared.inputs.size(); ++i) {
    slot->inputs.push_back(slot->to_chip->address() + prepared.inputs[i]);
    patch(Base::kInput, i, slot->inputs[i]);
  }
  for (uint32_t i = 0; i < prepared.outputs.size(); ++i) {
    slot->outputs.push_back(slot->from_chip->address() + prepared.outputs[i]);
    patch(Base::kOutput, i, slot->outputs[i]);
  }
  return slot;
}

Result<CoralPcieChip::Slot*> CoralPcieChip::TakeSlot(const Prepared& prepared) const {
  for (const auto& slot : prepared.slots) {
    if (!slot->in_use) return slot.get();
  }
  ATOLL_ASSIGN_OR_RETURN(auto slot, MakeSlot(prepared));
  prepared.slots.push_back(std::move(slot));
  return prepared.slots.back().get();
}

Result<std::unique_ptr<PreparedExecutable>> CoralPcieChip::Prepare(
    std::shared_ptr<const AnyExecutable> executable) const {
  ATOLL_RETURN_IF_ERROR(CheckFamily(*executable, info_));
  auto prepared = std::make_unique<Prepared>();
  prepared->executable = std::move(executable);
  const CoralExecutable& coral = prepared->coral();
  PageLayout to_chip, from_chip, caching;
  for (const auto& chunk : coral.inference.chunks) {
    prepared->chunks.push_back(to_chip.Add(chunk.size()));
  }
  for (const CoralLayer& wire : coral.input_wires) {
    prepared->inputs.push_back(to_chip.Add(wire.wire_bytes));
  }
  for (const CoralLayer& wire : coral.output_wires) {
    prepared->outputs.push_back(from_chip.Add(wire.wire_bytes));
  }
  for (const auto& chunk : coral.caching.chunks) {
    prepared->caching_chunks.push_back(caching.Add(chunk.size()));
  }
  prepared->to_chip_bytes = to_chip.bytes();
  prepared->from_chip_bytes = from_chip.bytes();
  if (to_chip.bytes() + from_chip.bytes() + caching.bytes() > kSlotBytesMax) {
    return ResourceExhausted(
        "'%s' has %zu instruction chunks, which take %llu bytes of pages with its layers; at most "
        "%llu are supported",
        coral.name.c_str(), coral.inference.chunks.size() + coral.caching.chunks.size(),
        static_cast<unsigned long long>(to_chip.bytes() + from_chip.bytes() + caching.bytes()),
        static_cast<unsigned long long>(kSlotBytesMax));
  }
  ATOLL_ASSIGN_OR_RETURN(prepared->cached_parameters, Share(coral.caching.parameters));
  ATOLL_ASSIGN_OR_RETURN(prepared->streamed_parameters, Share(coral.inference.parameters));
  if (caching.bytes() != 0) {
    ATOLL_ASSIGN_OR_RETURN(prepared->caching,
                           link_->Allocate(caching.bytes(), DmaDirection::kToDevice));
    CopyChunks(coral.caching, prepared->caching_chunks, *prepared->caching);
    using Base = CoralAddressField::Base;
    Patch(coral.caching, prepared->caching_chunks, *prepared->caching, Base::kParameters, 0,
          AddressOf(prepared->cached_parameters));
    Patch(coral.caching, prepared->caching_chunks, *prepared->caching, Base::kScratch, 0, 0);
    ATOLL_RETURN_IF_ERROR(prepared->caching->GiveToChip());
  }
  ATOLL_ASSIGN_OR_RETURN(auto slot, MakeSlot(*prepared));
  prepared->slots.push_back(std::move(slot));
  return std::unique_ptr<PreparedExecutable>(std::move(prepared));
}

// Memory of the callers.

Status CoralPcieChip::RegisterMemory(const HostMemory& memory) {
  if (memory.bytes.empty()) return InvalidArgument("no bytes to register");
  ATOLL_ASSIGN_OR_RETURN(auto mapped, link_->Map(memory.bytes, DmaDirection::kBoth));
  const std::lock_guard lock(mutex_);
  registered_.push_back({memory.bytes, std::move(mapped)});
  return {};
}

void CoralPcieChip::UnregisterMemory(std::span<uint8_t> memory) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(registered_.begin(), registered_.end(), [&](const Region& one) {
    return one.memory.data() == memory.data() && one.memory.size() == memory.size();
  });
  if (found != registered_.end()) registered_.erase(found);
}

// The chip's address of `memory`, if it lies in what is registered as the chip wants it; else 0.
uint64_t CoralPcieChip::FindRegistered(std::span<const uint8_t> memory) {
  if (reinterpret_cast<uintptr_t>(memory.data()) % kAlignmentBytes != 0) return 0;
  const std::lock_guard lock(mutex_);
  for (const Region& one : registered_) {
    const auto offset =
        reinterpret_cast<uintptr_t>(memory.data()) - reinterpret_cast<uintptr_t>(one.memory.data());
    if (one.mapped != nullptr && offset <= one.memory.size() &&
        memory.size() <= one.memory.size() - offset) {
      return one.mapped->address() + offset;
    }
  }
  return 0;
}

// Runs.

CoralPcieChip::Flight* CoralPcieChip::FindFlight(const Job& job) {
  const auto found = std::find_if(flights_.begin(), flights_.end(), [&](const Flight& flight) {
    return flight.request_id == job.request_id;
  });
  return found != flights_.end() ? &*found : nullptr;
}

// Until `done()`; meanwhile the chip is looked after.
template <typename Done>
Status CoralPcieChip::Await(Deadline deadline, const Done& done) {
  uint64_t seen = session_.retired() + session_.finished();
  Deadline patience = now_() + kPatience;
  while (!done()) {
    const Deadline now = now_();
    if (now >= std::min(deadline, patience)) {
      return Timeout("the chip has finished %llu of %llu runs and taken %llu of %llu chunks",
                     static_cast<unsigned long long>(session_.finished()),
                     static_cast<unsigned long long>(session_.runs()),
                     static_cast<unsigned long long>(session_.retired()),
                     static_cast<unsigned long long>(session_.queued()));
    }
    ATOLL_RETURN_IF_ERROR(link_->WatchTemperature());
    ATOLL_RETURN_IF_ERROR(session_.Attend(std::min(deadline, patience)));
    if (const uint64_t sum = session_.retired() + session_.finished(); sum != seen) {
      seen = sum;
      patience = now_() + kPatience;
    }
  }
  return {};
}

// Queues the chunks of `program`, which are at `offsets` of `memory`.
Status CoralPcieChip::Queue(const CoralProgram& program, const std::vector<uint64_t>& offsets,
                            const CoralMemory& memory, Deadline deadline) {
  for (size_t i = 0; i < program.chunks.size(); ++i) {
    if (session_.room() == 0) {
      ATOLL_RETURN_IF_ERROR(session_.RingBell());
      ATOLL_RETURN_IF_ERROR(Await(deadline, [this] { return session_.room() > 0; }));
    }
    session_.Queue(memory.address() + offsets[i], static_cast<uint32_t>(program.chunks[i].size()));
  }
  session_.EndRun();
  return session_.RingBell();
}

Status CoralPcieChip::Begin(const Job& job, Slot* slot) {
  using Base = CoralAddressField::Base;
  const auto& prepared = static_cast<const Prepared&>(*job.prepared);
  const CoralExecutable& coral = prepared.coral();
  Flight flight;
  flight.request_id = job.request_id;
  flight.slot = slot;
  flight.traffic = TrafficOf(coral.inference);
  flight.parameter_bytes = coral.inference.parameters.size();
  const bool is_cached = cache_.Use(prepared);
  if (!coral.caching.transfers.empty() && !is_cached) {
    Log(LogSeverity::kInfo, "device %s: uploading '%s', parameters %zu bytes", info_.name.c_str(),
        coral.name.c_str(), coral.caching.parameters.size());
    ATOLL_RETURN_IF_ERROR(
        Queue(coral.caching, prepared.caching_chunks, *prepared.caching, job.deadline)
            .WithContext("upload of the parameters"));
    cache_.Add(prepared);
    flight.traffic.to_device += TrafficOf(coral.caching).to_device;
    flight.parameter_bytes += coral.caching.parameters.size();
  }
  const auto place = [&](Base base, uint32_t index, uint64_t address, uint64_t* patched) {
    if (*patched == address) return;
    *patched = address;
    Patch(coral.inference, prepared.chunks, *slot->to_chip, base, index, address);
  };
  for (uint32_t i = 0; i < coral.inputs.size(); ++i) {
    const CoralLayer& wire = coral.input_wires[i];
    uint64_t address = 0;
    if (IsPlainCoralInput(wire, coral.inputs[i])) address = FindRegistered(job.inputs[i]);
    if (address == 0) {
      address = slot->to_chip->address() + prepared.inputs[i];
      PackCoralInput(wire, job.inputs[i],
                     slot->to_chip->bytes().subspan(prepared.inputs[i], wire.wire_bytes));
      flight.copied_bytes += job.inputs[i].size();
    }
    place(Base::kInput, i, address, &slot->inputs[i]);
  }
  for (uint32_t i = 0; i < coral.outputs.size(); ++i) {
    uint64_t address = 0;
    if (IsPlainCoralOutput(coral.output_wires[i], coral.outputs[i])) {
      address = FindRegistered(job.outputs[i]);
    }
    flight.outputs_in_place.push_back(address != 0);
    if (address == 0) {
      address = slot->from_chip->address() + prepared.outputs[i];
      flight.copied_bytes += job.outputs[i].size();
    }
    place(Base::kOutput, i, address, &slot->outputs[i]);
  }
  for (CoralMemory* const memory :
       {slot->to_chip.get(), slot->from_chip.get(), slot->scratch.get()}) {
    if (memory != nullptr) ATOLL_RETURN_IF_ERROR(memory->GiveToChip());
  }
  ATOLL_RETURN_IF_ERROR(Queue(coral.inference, prepared.chunks, *slot->to_chip, job.deadline));
  slot->in_use = true;
  flight.retired = session_.queued();
  flight.finished = session_.runs();
  flights_.push_back(std::move(flight));
  return {};
}

// What there is room for at once, in the order of the jobs.
Status CoralPcieChip::RunAhead(std::span<const Job> ahead) {
  for (const Job& job : ahead) {
    if (FindFlight(job) != nullptr) continue;
    const auto& prepared = static_cast<const Prepared&>(*job.prepared);
    const CoralExecutable& coral = prepared.coral();
    if (flights_.size() >= kJobsInFlightMax ||
        coral.caching.chunks.size() + coral.inference.chunks.size() > session_.room()) {
      return {};
    }
    const Result<Slot*> slot = TakeSlot(prepared);
    if (!slot.ok()) return {};  // it has its turn later
    ATOLL_RETURN_IF_ERROR(Begin(job, *slot));
  }
  return {};
}

Status CoralPcieChip::Finish(const Job& job, const Flight& flight) {
  const auto& prepared = static_cast<const Prepared&>(*job.prepared);
  const CoralExecutable& coral = prepared.coral();
  Slot& slot = *flight.slot;
  for (CoralMemory* const memory : {slot.to_chip.get(), slot.from_chip.get(), slot.scratch.get()}) {
    if (memory != nullptr) ATOLL_RETURN_IF_ERROR(memory->TakeBack());
  }
  for (size_t i = 0; i < coral.outputs.size(); ++i) {
    if (flight.outputs_in_place[i]) continue;
    const CoralLayer& wire = coral.output_wires[i];
    UnpackCoralOutput(wire, slot.from_chip->bytes().subspan(prepared.outputs[i], wire.wire_bytes),
                      job.outputs[i]);
  }
  return {};
}

Status CoralPcieChip::RunThrough(const Job& job, std::span<const Job> ahead,
                                 RequestReport* report) {
  if (!is_up_) return DeviceLost("it has not come back after an error");
  ATOLL_RETURN_IF_ERROR(link_->WatchTemperature());
  if (FindFlight(job) == nullptr) {
    ATOLL_ASSIGN_OR_RETURN(Slot* const slot, TakeSlot(static_cast<const Prepared&>(*job.prepared)));
    ATOLL_RETURN_IF_ERROR(Begin(job, slot));
  }
  ATOLL_RETURN_IF_ERROR(RunAhead(ahead));
  const Flight flight = *FindFlight(job);
  report->parameter_bytes += flight.parameter_bytes;
  meter_.Copied(flight.copied_bytes);
  meter_.Sent(flight.traffic.to_device);
  ATOLL_RETURN_IF_ERROR(Await(job.deadline, [&] {
    return session_.finished() >= flight.finished && session_.retired() >= flight.retired;
  }));
  may_reset_ = true;
  meter_.Received(flight.traffic.from_device);
  ATOLL_RETURN_IF_ERROR(Finish(job, flight));
  flight.slot->in_use = false;
  std::erase_if(flights_, [&](const Flight& one) { return one.request_id == job.request_id; });
  return {};
}

Status CoralPcieChip::Run(const Job& job, std::span<const Job> ahead, RequestReport* report) {
  meter_.Start();
  Status status = RunThrough(job, ahead, report);
  if (!status.ok()) BreakOff();
  meter_.Stop(report);
  return status;
}

// Nothing is under way any more, and nothing of the callers' is reached.
void CoralPcieChip::BreakOff() {
  cache_.Clear();
  for (const Flight& flight : flights_) flight.slot->in_use = false;
  flights_.clear();
  if (!std::exchange(is_up_, false)) return;
  if (session_.Pause(now_() + kPauseTimeout).ok()) return;
  if (link_->Stop(now_() + kStopTimeout).ok()) return;
  // What is left is to take the memory away: the system's IOMMU stops who goes there.
  const std::lock_guard lock(mutex_);
  for (Region& one : registered_) one.mapped = nullptr;
}

}  // namespace atollrt
