// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_coral_function.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <optional>

#include "runtime/base/buffer.h"
#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kExtended = uint64_t{1} << 63;
constexpr uint32_t kBarBytes = 1 << 20;
constexpr uint32_t kCore = 0x40000;  // registers from here on are off in reset
constexpr uint32_t kScuGates = 0x1A314, kScuPower = 0x1A318, kTemperature = 0x1A0DC;
constexpr uint32_t kSimpleEntries = 0x46008, kTable = 0x50000;
constexpr uint32_t kQueueControl = 0x48568, kQueueStatus = 0x48570, kQueueBase = 0x48590;
constexpr uint32_t kStatusBlock = 0x48598, kQueueSize = 0x485A0, kTail = 0x485A8;
constexpr uint32_t kQueueInterrupt = 0x485C0, kScalarInterrupt = 0x486A0, kFatalInterrupt = 0x486C0;
constexpr uint32_t kCounts = 0x486D0, kPause = 0x486D8, kPaused = 0x486E0;
constexpr uint32_t kError = 0x486F0, kFirstError = 0x48700, kFaultAddress = 0x48738;

class FakeCoralFunction final : public PcieFunction {
 public:
  FakeCoralFunction(FakeCoralFunctionState* state, FakeClock* clock)
      : state_(*state), clock_(*clock) {
    PowerOn();
  }
  ~FakeCoralFunction() override {
    if (!state_.is_gone && !in_reset_) Complain("let go of while it is not in reset");
  }

  Result<uint32_t> Read32(uint32_t bar, uint64_t offset) override {
    return static_cast<uint32_t>(Load(bar, static_cast<uint32_t>(offset), 4));
  }
  Result<uint64_t> Read64(uint32_t bar, uint64_t offset) override {
    return Load(bar, static_cast<uint32_t>(offset), 8);
  }
  Status Write32(uint32_t bar, uint64_t offset, uint32_t value) override {
    Store(bar, static_cast<uint32_t>(offset), value, 4);
    return {};
  }
  Status Write64(uint32_t bar, uint64_t offset, uint64_t value) override {
    Store(bar, static_cast<uint32_t>(offset), value, 8);
    return {};
  }

  bool maps_callers_memory() const override { return state_.can_map; }
  Result<std::unique_ptr<DmaMapping>> Map(std::span<uint8_t> memory,
                                          DmaDirection direction) override {
    return Add(Buffer(), memory, direction);
  }
  Result<std::unique_ptr<DmaMapping>> Allocate(uint64_t size, DmaDirection direction) override {
    ATOLL_ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(size + kPage));
    const auto begin = reinterpret_cast<uintptr_t>(buffer.data());
    const auto memory = buffer.bytes().subspan((kPage - begin % kPage) % kPage, size);
    return Add(std::move(buffer), memory, direction);
  }

  Status EnableInterrupts(uint32_t count) override {
    if (count != 0 && in_reset_) Complain("interrupts connected in reset");
    vectors_ = count;
    raised_ = 0;
    return {};
  }
  Result<uint64_t> AwaitInterrupts(uint64_t vectors, Deadline deadline) override {
    Work();
    const uint64_t found = raised_ & vectors;
    raised_ &= ~vectors;
    if (found != 0) return found;
    clock_.AdvanceTo(deadline);
    return Timeout("no interrupt");
  }
  void Cancel() override {}
  Status Reset(Deadline) override {
    ++state_.function_resets;
    if (!state_.resets) return Unsupported("no reset of the function");
    state_.stuck.clear();
    PowerOn();
    return {};
  }
  bool is_present() override { return !state_.is_gone; }

 private:
  struct Range {
    uint8_t* host;
    uint64_t bytes;
    DmaDirection direction;
  };
  class Mapping final : public DmaMapping {
   public:
    Mapping(FakeCoralFunction* function, Buffer own, std::span<uint8_t> memory, uint64_t iova)
        : DmaMapping(memory, iova), function_(function), own_(std::move(own)) {}
    ~Mapping() override {
      function_->ranges_.erase(iova() / kPage * kPage);
      --function_->state_.mappings;
      if (function_->run_ != nullptr && !function_->is_quiet()) {
        function_->Complain("memory is taken away from a program that runs");
      }
    }

   private:
    FakeCoralFunction* const function_;
    Buffer own_;
  };

  void Complain(std::string text) { state_.complaints.push_back(std::move(text)); }
  uint64_t Get(uint32_t address) const {
    return LoadLittleEndian<uint64_t>(registers_.data() + address);
  }
  void Set(uint32_t address, uint64_t value) {
    StoreLittleEndian(registers_.data() + address, value);
  }
  bool is_quiet() const {
    return in_reset_ || state_.is_gone || (Get(kPause) & 1) != 0 || (Get(kQueueControl) & 1) == 0;
  }

  void PowerOn() {
    std::fill(registers_.begin(), registers_.end(), uint8_t{0});
    StoreLittleEndian(registers_.data() + 0x1A000, uint32_t{0x0219089A});
    StoreLittleEndian(registers_.data() + kScuPower, uint32_t{0x80050410});
    ResetCore();
    in_reset_ = true;
    vectors_ = 0;
  }
  void ResetCore() {
    // Nobody knows what hardware keeps: everything that it may is noise.
    std::fill(registers_.begin() + kCore, registers_.end(), uint8_t{0});
    for (uint32_t i = 0; i < 8192; ++i) Set(kTable + 8 * i, 0x5A5A5001);
    Set(kTail, 77);
    Set(0x46000, 8192);
    Set(0x46078, 1);
    Set(0x46080, 1);
    Set(0x48578, 16);
    vectors_ = 0;
    run_ = nullptr;
    hung_ = false;
    head_ = 0;
  }

  // Sometimes, and always the same ones.
  bool IsNoise() { return state_.noise != 0 && (Noise() >> 16) % 16 == 0; }
  uint32_t Noise() { return state_.noise = state_.noise * 1664525 + 1013904223; }

  uint64_t Load(uint32_t bar, uint32_t address, int bytes) {
    if (IsNoise()) return Noise() >> (Noise() >> 16) % 32;
    clock_.AdvanceTo(clock_.Now() + std::chrono::milliseconds(10));
    if (state_.is_gone) return ~uint64_t{0};
    if (bar != 2 || address + 8 > kBarBytes) Complain("no such register");
    if (in_reset_ && address >= kCore) Complain(Format("%05x read in reset", address));
    uint64_t value = Get(address);
    if (state_.stuck.count(address) != 0) return value;
    if (address == kQueueStatus) value = Get(kQueueControl) & 1;
    if (address == kPaused) value = Get(kPause) & 1;
    if (address == kScuPower) {
      value &= ~uint64_t{0x50};
      value |= in_reset_ ? 0x10 : 0;
      value |= (value >> 14 & 3) == 3 ? 0x40 : 0;
    }
    if (address == kTemperature && (value & 1) != 0) {
      value = (value & ~uint64_t{0x3FF0000}) | uint64_t{state_.reading} << 16;
    }
    return bytes == 8 ? value : value & 0xFFFFFFFF;
  }

  void Store(uint32_t bar, uint32_t address, uint64_t value, int bytes) {
    if (state_.is_gone) return;
    if (address < kTable) state_.writes.emplace_back(address, value);
    if (bar != 2 || address + 8 > kBarBytes) Complain("no such register");
    if (in_reset_ && address >= kCore) {
      Complain(Format("%05x written in reset", address));
      return;
    }
    if (state_.stuck.count(address) != 0) return;
    if (address == kScuGates) {
      const auto mode = value >> 2 & 3;
      if (mode == 1 && !in_reset_) ResetCore();
      if (mode != 0) in_reset_ = mode == 1;
    }
    if (address == kQueueInterrupt + 8 || address == kScalarInterrupt + 8 ||
        address == kFatalInterrupt + 8) {
      value &= Get(address);
    }
    if (address == kQueueControl && (value & 1) != 0) head_ = 0;
    std::array<uint8_t, 8> word;
    StoreLittleEndian(word.data(), value);
    std::copy_n(word.begin(), bytes, registers_.begin() + address);
  }

  Result<std::unique_ptr<DmaMapping>> Add(Buffer own, std::span<uint8_t> memory,
                                          DmaDirection direction) {
    if (memory.empty()) return InvalidArgument("no bytes");
    if (state_.mappings >= state_.mappings_max) return ResourceExhausted("too much is mapped");
    const uint64_t offset = reinterpret_cast<uintptr_t>(memory.data()) % kPage;
    const uint64_t iova = next_iova_ + offset;
    ranges_[next_iova_] = {memory.data() - offset, offset + memory.size(), direction};
    next_iova_ += (offset + memory.size() + 2 * kPage) / kPage * kPage;
    ++state_.mappings;
    return std::unique_ptr<DmaMapping>(
        std::make_unique<Mapping>(this, std::move(own), memory, iova));
  }

  // Behind the IOMMU; nullptr if the device may not go there.
  uint8_t* Host(uint64_t iova, bool writes) {
    if (state_.reach) return state_.reach(iova, writes);
    auto range = ranges_.upper_bound(iova);
    if (range == ranges_.begin()) return nullptr;
    --range;
    const uint64_t offset = iova - range->first;
    // Whole pages are pinned.
    if (offset >= (range->second.bytes + kPage - 1) / kPage * kPage) return nullptr;
    const DmaDirection wrong = writes ? DmaDirection::kToDevice : DmaDirection::kFromDevice;
    if (range->second.direction == wrong) return nullptr;
    return range->second.host + offset;
  }
  // Behind the chip's own page table, too.
  uint8_t* Translate(uint64_t address, bool writes) {
    const uint64_t simple = Get(kSimpleEntries);
    const uint64_t rest = address & ~kExtended;
    uint64_t entry = 0;
    if ((address & kExtended) == 0) {
      if (rest / kPage >= simple) return nullptr;
      entry = Get(kTable + static_cast<uint32_t>(8 * (rest / kPage)));
    } else {
      const uint64_t index = simple + (rest >> 21);
      if (index >= 8192) return nullptr;
      const uint64_t table = Get(kTable + static_cast<uint32_t>(8 * index));
      const uint8_t* const place =
          (table & 1) != 0 ? Host((table & ~uint64_t{0xFFF}) + 8 * (rest >> 12 & 511), false)
                           : nullptr;
      if (place == nullptr) return nullptr;
      entry = LoadLittleEndian<uint64_t>(place);
    }
    return (entry & 1) != 0 ? Host((entry & ~uint64_t{0xFFF}) + address % kPage, writes) : nullptr;
  }
  bool Transfer(uint64_t address, std::span<uint8_t> data, bool writes) {
    for (size_t i = 0; i < data.size(); ++i) {
      uint8_t* const host = Translate(address + i, writes);
      if (host == nullptr) {
        Set(kFaultAddress, address + i);
        Fail((address & kExtended) != 0 ? 2 : 1);
        return false;
      }
      (writes ? *host : data[i]) = writes ? data[i] : *host;
    }
    return true;
  }

  void Fail(uint64_t bits) {
    if (Get(kFirstError) == 0) Set(kFirstError, bits);
    Set(kError, Get(kError) | bits);
    run_ = nullptr;
    hung_ = true;
    Raise(12, kFatalInterrupt, 1);
  }
  void Raise(uint32_t vector, uint32_t control, uint64_t bit) {
    Set(control + 8, Get(control + 8) | bit);
    const uint32_t selector = vector == 0 ? 0x46018 : vector < 8 ? 0x46038 : 0x46048;
    const auto line = vector == 4 ? Get(selector) & 0x7F : Get(selector);
    const bool is_lost = (state_.lost_vectors >> vector & 1) != 0;
    if ((Get(control) & bit) != 0 && line < vectors_ && !is_lost) raised_ |= uint64_t{1} << line;
  }
  void Retire(uint32_t error) {
    std::array<uint8_t, 16> block{};
    const bool lies = state_.lie_at == state_.runs;
    StoreLittleEndian(block.data(), lies ? head_ + 5 : head_);
    StoreLittleEndian(block.data() + 4, error);
    if (IsNoise()) StoreLittleEndian(block.data(), Noise() >> 22);
    if (Transfer(Get(kStatusBlock), block, true)) Raise(0, kQueueInterrupt, 1);
    if (lies) hung_ = true;
  }

  const CoralProgram* Recognise(const std::vector<uint8_t>& bytes, size_t chunk,
                                const CoralExecutable** executable) const {
    for (const auto& one : state_.executables) {
      for (const CoralProgram* const program : {&one->caching, &one->inference}) {
        if (chunk >= program->chunks.size() || program->chunks[chunk].size() != bytes.size()) {
          continue;
        }
        if (run_ != nullptr && program != run_) continue;
        std::vector<uint8_t> plain = bytes;
        for (const CoralAddressField& field : program->fields) {
          if (field.chunk == chunk) WriteCoralAddress(field, 0, plain);
        }
        if (plain != program->chunks[chunk]) continue;
        *executable = one.get();
        return program;
      }
    }
    return nullptr;
  }
  // Bit by bit, unlike the driver.
  static uint64_t FieldOf(const std::vector<uint8_t>& bytes, const CoralAddressField& field) {
    uint64_t value = 0;
    for (uint32_t i = 0; i < 32; ++i) {
      const uint32_t bit = field.bit + i;
      value |= uint64_t{bytes[bit / 8] >> bit % 8 & 1u} << i;
    }
    return field.is_upper_half ? value << 32 : value;
  }

  void Work() {
    while (!is_quiet() && !hung_ && head_ != Get(kTail)) {
      const auto size = static_cast<uint32_t>(Get(kQueueSize));
      state_.waiting.push_back((static_cast<uint32_t>(Get(kTail)) - head_) % size);
      std::array<uint8_t, 16> descriptor;
      if (!Transfer(Get(kQueueBase) + 16 * head_, descriptor, false)) return;
      const auto address = LoadLittleEndian<uint64_t>(descriptor.data());
      std::vector<uint8_t> chunk(LoadLittleEndian<uint32_t>(descriptor.data() + 8));
      if (chunk.empty() || LoadLittleEndian<uint32_t>(descriptor.data() + 12) != 0) {
        return Fail(1 << 9);
      }
      if (!Transfer(address, chunk, false)) return;
      if (run_ == nullptr) next_chunk_ = next_step_ = 0;
      const CoralExecutable* executable = nullptr;
      const CoralProgram* const program = Recognise(chunk, next_chunk_, &executable);
      if (program == nullptr) {
        Complain("unknown instructions");
        return Fail(1 << 9);
      }
      if (run_ == nullptr) {
        run_ = program;
        executable_ = executable;
        bases_.clear();
        ++state_.runs;
        if (state_.runs == state_.unmap_at) ranges_.clear();
      }
      for (const CoralAddressField& field : program->fields) {
        if (field.chunk != next_chunk_) continue;
        bases_[{field.base, field.index}] |= FieldOf(chunk, field);
      }
      ++next_chunk_;
      head_ = (head_ + 1) % size;
      if (state_.runs == state_.hang_at) hung_ = true;
      if (hung_) return;
      if (state_.runs == state_.fatal_at) return Fail(state_.fatal_bits);
      if (state_.runs == state_.queue_error_at) {
        hung_ = true;
        return Retire(3);
      }
      if (!state_.retires_late) Retire(0);
      if (hung_) return;
      Continue();
      if (state_.retires_late) Retire(0);
    }
  }
  void Continue() {
    using Kind = CoralTransfer::Kind;
    using Base = CoralAddressField::Base;
    for (; run_ != nullptr && next_step_ < run_->transfers.size(); ++next_step_) {
      const CoralTransfer& step = run_->transfers[next_step_];
      if (step.kind == Kind::kInstructions) {
        if (step.index >= next_chunk_) return;
        continue;
      }
      if (step.kind == Kind::kInterrupt) {
        Set(kCounts, (Get(kCounts) + 1) & 0xFFFF);
        Raise(4, kScalarInterrupt, 1);
        continue;
      }
      const Base base = step.kind == Kind::kInput        ? Base::kInput
                        : step.kind == Kind::kOutput     ? Base::kOutput
                        : step.kind == Kind::kParameters ? Base::kParameters
                                                         : Base::kScratch;
      const uint32_t index = base == Base::kInput || base == Base::kOutput ? step.index : 0;
      const uint64_t address = bases_[{base, static_cast<uint16_t>(index)}] + step.offset;
      if (address % 8 != step.offset % 8) Complain("an address that is no multiple of 8");
      std::vector<uint8_t> data(step.bytes);
      const bool writes = step.kind == Kind::kOutput || step.kind == Kind::kScratchOut;
      if (step.kind == Kind::kOutput) {
        const auto all = FakeCoralOutput(state_.runs, index, step.offset + step.bytes);
        std::copy(all.begin() + step.offset, all.end(), data.begin());
      }
      if (!Transfer(address, data, writes)) return;
      if (step.kind == Kind::kInput && index == 0 && step.offset == 0) {
        state_.inputs.push_back(data);
        state_.input_hosts.push_back(reinterpret_cast<uintptr_t>(Translate(address, false)));
      }
      if (step.kind == Kind::kParameters &&
          !std::equal(data.begin(), data.end(), run_->parameters.begin() + step.offset)) {
        Complain("other parameters");
      }
    }
    run_ = nullptr;
  }

  FakeCoralFunctionState& state_;
  FakeClock& clock_;
  std::vector<uint8_t> registers_ = std::vector<uint8_t>(kBarBytes);
  bool in_reset_ = true;
  bool hung_ = false;
  uint32_t vectors_ = 0;
  uint64_t raised_ = 0;
  std::map<uint64_t, Range> ranges_;  // by the IOVA of their first page
  uint64_t next_iova_ = 1 << 20;
  uint32_t head_ = 0;
  const CoralProgram* run_ = nullptr;
  const CoralExecutable* executable_ = nullptr;
  size_t next_chunk_ = 0, next_step_ = 0;
  std::map<std::pair<CoralAddressField::Base, uint16_t>, uint64_t> bases_;
};

}  // namespace

uint64_t FakeCoralFunctionState::Last(uint32_t address) const {
  const auto last = std::find_if(writes.rbegin(), writes.rend(),
                                 [&](const auto& write) { return write.first == address; });
  return last != writes.rend() ? last->second : 0;
}

std::vector<uint8_t> FakeCoralOutput(int run, uint32_t index, size_t bytes) {
  std::vector<uint8_t> output(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    output[i] = static_cast<uint8_t>(static_cast<size_t>(run) * 37 + index * 11 + i);
  }
  return output;
}

std::unique_ptr<PcieFunction> MakeFakeCoralFunction(FakeCoralFunctionState* state,
                                                    FakeClock* clock) {
  return std::make_unique<FakeCoralFunction>(state, clock);
}

}  // namespace atollrt
