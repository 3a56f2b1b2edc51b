// SPDX-License-Identifier: Apache-2.0
#include "driver/doctor/self_test.h"

#include <charconv>
#include <chrono>
#include <iterator>
#include <string_view>
#include <utility>
#include <variant>

#include "atoll/check.h"
#include "driver/device_name.h"
#include "driver/isa/assembly.h"
#include "driver/isa/memory_access.h"
#include "driver/open_device.h"
#include "runtime/base/bytes.h"
#include "runtime/base/monotonic.h"
#include "runtime/kernels/cpu_features.h"
#include "runtime/kernels/self_test.h"

namespace atollrt {
namespace {

constexpr std::chrono::seconds kTimeout{5};

constexpr struct {
  const char* name;
  const char* text;
} kCases[] = {
#include "driver/self_test.inc"  // made from self_test.txt, in the build tree
};

// splitmix64 (Steele, Lea, Flood 2014).
class Numbers {
 public:
  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::vector<uint8_t> Bytes(size_t count) {
    std::vector<uint8_t> bytes(count);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(Next());
    return bytes;
  }

 private:
  uint64_t state_ = 0;
};

// Valid channel records (docs/isa.md §3) whose outputs use most of a byte's range.
void WriteRecords(std::span<uint8_t> records, bool is_double, Numbers* numbers) {
  for (; !records.empty(); records = records.subspan(kChannelRecordBytes)) {
    const auto bias = static_cast<int32_t>(numbers->Next() % 8001) - 4000;
    const auto multiplier = static_cast<int32_t>(numbers->Next() % (1u << 30)) + (1 << 30);
    StoreLittleEndian<int32_t>(records.data(), bias);
    if (is_double) {
      StoreLittleEndian<int32_t>(records.data() + 4, 0);
      StoreLittleEndian<double>(records.data() + 8, multiplier / static_cast<double>(1ll << 41));
    } else {
      StoreLittleEndian<int32_t>(records.data() + 4, multiplier);
      StoreLittleEndian<int64_t>(records.data() + 8, static_cast<uint32_t>(-10));
    }
  }
}

bool IsDouble(const Instruction& instruction) {
  const auto* conv = std::get_if<Conv2DInstruction>(&instruction);
  return conv != nullptr && (conv->flags & kFlagDouble) != 0;
}

// Parameters and addresses for `program`, which is one instruction, and perhaps an ADD chained to
// it. The whole activation segment is the input, and afterwards the output.
SelfTestCase Make(std::string name, uint64_t output_hash, const std::vector<Instruction>& given) {
  Numbers numbers;
  auto executable = std::make_shared<Executable>();
  EncodedInstruction encoded = Encode(given[0]);
  uint32_t activation_bytes = 0;
  std::vector<uint8_t>& parameters = executable->resident_parameters;
  for (const MemoryAccess& access : AccessesOf(given[0])) {
    const OperandInfo& operand = InstructionTable()[given[0].index()].operands[access.word - 1];
    const std::string_view content = operand.name();
    uint32_t address = activation_bytes;
    if (content == "weight_address" || content == "channel_address" || content == "table_address") {
      const size_t begin = parameters.size();
      address = kParameterSegment | static_cast<uint32_t>(begin);
      const std::vector<uint8_t> bytes = numbers.Bytes(access.bytes);
      parameters.insert(parameters.end(), bytes.begin(), bytes.end());
      if (content == "channel_address") {
        WriteRecords(std::span(parameters).subspan(begin), IsDouble(given[0]), &numbers);
      }
    } else {
      activation_bytes += static_cast<uint32_t>(access.bytes);
    }
    StoreLittleEndian(&encoded[access.word * size_t{4}], address);
  }
  executable->name = std::move(name);
  if (!parameters.empty()) {
    const auto bytes = static_cast<uint32_t>(parameters.size());
    executable->caching_program = {
        ParametersInstruction{.output_address = kParameterSegment, .bytes = bytes},
        EndInstruction{}};
  }
  std::vector<Instruction>& program = executable->inference_program;
  program = {InputInstruction{}, *Decode(encoded)};
  if (given.size() > 1) {
    const MemoryAccess made = AccessesOf(program.back()).back();
    const auto bytes = static_cast<uint32_t>(made.bytes);
    auto add = std::get<AddInstruction>(given[1]);
    add.input1_address = activation_bytes;
    add.input2_address = made.address;
    add.output_address = activation_bytes + bytes;
    program.push_back(add);
    activation_bytes += 2 * bytes;
  }
  program.front() = InputInstruction{.bytes = activation_bytes};
  program.push_back(OutputInstruction{.bytes = activation_bytes});
  program.push_back(EndInstruction{});
  executable->activation_bytes = activation_bytes;
  executable->inputs = {{.name = "before",
                         .shape = {static_cast<int32_t>(activation_bytes)},
                         .bytes = activation_bytes}};
  executable->outputs = executable->inputs;
  executable->outputs[0].name = "after";
  return {.executable = std::move(executable),
          .input = numbers.Bytes(activation_bytes),
          .output_hash = output_hash};
}

SelfTestResult TestKernels() {
  const int64_t begin_ns = MonotonicNs();
  SelfTestResult result{.device = "cpu", .name = "kernels of every level", .status = RunSelfTest()};
  result.seconds = static_cast<double>(MonotonicNs() - begin_ns) * 1e-9;
  return result;
}

}  // namespace

uint64_t HashOf(std::span<const uint8_t> bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3u;
  return hash;
}

std::vector<SelfTestCase> SelfTestCases() {
  std::vector<SelfTestCase> cases;
  // A line "NAME: HASH", then those of its program, which begin with a space.
  for (std::string_view rest = kCases[0].text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n') + 1);
    rest.remove_prefix(line.size());
    const size_t colon = line.find(": ");
    if (line[0] == ';' || colon == line.npos) continue;
    uint64_t hash = 0;
    std::from_chars(line.data() + colon + 2, line.data() + line.size(), hash, 16);
    size_t end = 0;
    while (end < rest.size() && rest[end] == ' ') end = rest.find('\n', end) + 1;
    const Result<std::vector<Instruction>> program = AssembleProgram(rest.substr(0, end));
    ATOLL_CHECK(program.ok());
    cases.push_back(Make(std::string(line.substr(0, colon)), hash, *program));
    rest.remove_prefix(end);
  }
  return cases;
}

Result<uint64_t> RunSelfTestCase(const SelfTestCase& test, Device* device) {
  ATOLL_ASSIGN_OR_RETURN(const ExecutableId id, device->Load(test.executable));
  std::vector<uint8_t> output(test.executable->outputs[0].bytes);
  const Request request{
      .executable = id, .inputs = {test.input}, .outputs = {output}, .timeout = kTimeout};
  Status status;
  if (const auto submitted = device->Submit(request); submitted.ok()) {
    status = device->Wait(*submitted, nullptr);
  } else {
    status = submitted.status();
  }
  const Status unloaded = device->Unload(id);
  if (!status.ok()) return status;
  if (!unloaded.ok()) return unloaded;
  return HashOf(output);
}

std::vector<SelfTestResult> SelfTestDevice(Device* device, const std::string& name) {
  std::vector<SelfTestResult> results;
  for (const SelfTestCase& test : SelfTestCases()) {
    const int64_t begin_ns = MonotonicNs();
    const Result<uint64_t> hash = RunSelfTestCase(test, device);
    SelfTestResult result{.device = name, .name = test.executable->name, .status = hash.status()};
    result.seconds = static_cast<double>(MonotonicNs() - begin_ns) * 1e-9;
    if (hash.ok() && *hash != test.output_hash) {
      result.status = InternalError(
          "%s computes %s wrongly: the hash of the outputs is %016llx, must be %016llx",
          device->info().name.c_str(), result.name.c_str(), static_cast<unsigned long long>(*hash),
          static_cast<unsigned long long>(test.output_hash));
    }
    results.push_back(std::move(result));
    if (results.back().status.code() == StatusCode::kDeviceLost) break;
  }
  return results;
}

Result<std::vector<SelfTestResult>> SelfTest(const std::string& device,
                                             const std::shared_ptr<UsbBus>& usb,
                                             const std::shared_ptr<PcieBus>& pcie) {
  ATOLL_ASSIGN_OR_RETURN(const DeviceName parsed, ParseDeviceName(device));
  std::vector<SelfTestResult> results;
  if (parsed.kind == DeviceName::Kind::kCpu) {
    results.push_back(TestKernels());
    return results;
  }
  // A stand-in must not answer for a device that is lost.
  OpenOptions options{.device = device, .usb = usb, .pcie = pcie, .on_loss = OnDeviceLoss::kFail};
  ATOLL_ASSIGN_OR_RETURN(const std::unique_ptr<Device> opened, OpenDevice(options));
  const DeviceInfo& info = opened->info();
  results.push_back(TestKernels());
  const auto test = [&results](Device* tested, const std::string& name) {
    std::vector<SelfTestResult> more = SelfTestDevice(tested, name);
    std::move(more.begin(), more.end(), std::back_inserter(results));
  };
  options.device = info.emulated ? info.name : "emu";
  ATOLL_ASSIGN_OR_RETURN(const CpuFeatures available, DetectCpuFeatures());
  for (const CpuLevel& level : CpuLevels()) {
    if (!Supports(available, level.features)) continue;
    options.cpu_features = level.features;
    ATOLL_ASSIGN_OR_RETURN(const std::unique_ptr<Device> emulator, OpenDevice(options));
    test(emulator.get(), options.device + ", " + level.name + " kernels");
  }
  if (info.family != DeviceFamily::kAtoll1) {
    // Its instructions are not known; but it has been brought up, register by register.
    results.push_back({.device = info.name, .name = "opened", .status = {}});
  } else if (!info.emulated) {
    test(opened.get(), info.name);
  }
  return results;
}

}  // namespace atollrt
