// SPDX-License-Identifier: Apache-2.0
//
// Executable: a compiled partition as delegate/ produces it and the driver consumes it: programs,
// parameters, layouts of inputs and outputs, estimated cycles. docs/executable.md describes the
// stored form. Plain data; immutable once shared.
//
// AnyExecutable is what executables of all families of devices have in common: all that a caller
// must know to run one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/status.h"
#include "driver/isa/device_shape.h"
#include "driver/isa/instruction.h"

namespace atollrt {

// An Atoll-1 has the first three only.
enum class LayerType : uint8_t { kInt8 = 0, kUInt8 = 1, kInt16 = 2, kInt32, kFloat16, kFloat32 };
uint64_t LayerTypeBytes(LayerType type);
const char* LayerTypeName(LayerType type);  // "int8"

// What ValidateExecutable allows.
inline constexpr size_t kMaxLayers = 1024;                    // inputs and outputs together
inline constexpr size_t kMaxLayerRank = 8;                    // dimensions of each
inline constexpr uint64_t kSegmentLimit = uint64_t{1} << 31;  // of bytes, and of a stream; below it

struct Layer {
  std::string name;
  LayerType type = LayerType::kInt8;
  std::vector<int32_t> shape;  // row-major
  uint64_t bytes = 0;          // of all elements
  bool operator==(const Layer&) const = default;
};

uint64_t TotalBytes(const std::vector<Layer>& layers);

const char* DeviceFamilyName(DeviceFamily family);  // "Atoll-1", "Coral"

struct AnyExecutable {
  DeviceFamily family = DeviceFamily::kAtoll1;  // says which struct this is the base of
  std::string name;
  std::vector<Layer> inputs;
  std::vector<Layer> outputs;
  bool operator==(const AnyExecutable&) const = default;
};

// What an Atoll-1 runs.
struct Executable : AnyExecutable {
  uint32_t isa_version = kIsaVersion;
  // Run once after upload: takes resident_parameters from the parameter stream. Empty if there
  // are none.
  std::vector<Instruction> caching_program;
  // Run for every request: takes the inputs in order and streamed_parameters, gives the outputs
  // in order. Ends with END.
  std::vector<Instruction> inference_program;
  std::vector<uint8_t> resident_parameters;  // size of the parameter segment
  std::vector<uint8_t> streamed_parameters;  // sent again with every request
  uint64_t activation_bytes = 0;             // size of the activation segment
  uint64_t estimated_cycles = 0;             // of one inference, for the array named below
  uint32_t array_rows = 0;
  uint32_t array_columns = 0;
  // For each instruction of the inference program the node that it computes or whose parameters it
  // fetches, as its position among the nodes of the partition; -1 for what belongs to none. For
  // reports and traces. Empty: unknown.
  std::vector<int32_t> inference_nodes;
  bool operator==(const Executable&) const = default;
};

enum class ProgramKind { kCaching, kInference };
// The node of the partition that an instruction of one of the programs comes from, or -1.
int32_t NodeOf(const Executable& executable, ProgramKind program, size_t index);
// Cycles of the instruction alone on the array that the executable was compiled for; 0 if that is
// not known.
uint64_t InstructionCycles(const Executable& executable, const Instruction& instruction);

// A name from outside as it may appear in a message: short, printable, between quotes.
std::string Quoted(std::string_view name);

// Checks docs/executable.md, "What must hold": layer sizes match shapes, each program ends with its
// only END and moves exactly the announced bytes, operands begin inside their segments. Operand
// values are left to the device. kCorruptModel with the name and the numbers; kUnsupported for
// another ISA version.
Status ValidateExecutable(const Executable& executable);

// The stored form; ReadExecutable gives an equal executable back. `executable` must be valid and
// its parts together smaller than 2 GiB.
std::vector<uint8_t> WriteExecutable(const Executable& executable);

// Whether the bytes begin as the stored form does: that they are meant as an executable, and not as
// a model.
bool LooksLikeExecutable(std::span<const uint8_t> bytes);

// Takes hostile bytes, at any alignment: verifies the container, decodes every instruction and
// validates what comes out. Errors as ValidateExecutable.
Result<Executable> ReadExecutable(std::span<const uint8_t> bytes);

}  // namespace atollrt
