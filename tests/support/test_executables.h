// SPDX-License-Identifier: Apache-2.0
//
// Small executables whose outputs a test can compute itself.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "driver/isa/executable.h"

namespace atollrt {

// Replaces each of `count` input bytes by its entry in a table of 256.
struct TableExecutableOptions {
  std::string name = "table";
  uint32_t count = 4;
  uint8_t offset = 0x10;           // table[x] = x + offset
  uint32_t extra_parameters = 0;   // resident bytes behind the table
  uint64_t extra_activations = 0;  // bytes behind input and output
  enum { kResident, kStreamed } table = kResident;
};

inline Executable MakeTableExecutable(const TableExecutableOptions& options) {
  const uint32_t count = options.count;
  std::vector<uint8_t> table(256 + options.extra_parameters);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<uint8_t>(i + options.offset);
  const auto bytes = static_cast<uint32_t>(table.size());
  const bool resident = options.table == TableExecutableOptions::kResident;
  const uint32_t table_address = resident ? kParameterSegment : 2 * count;

  Executable executable;
  executable.name = options.name;
  executable.inference_program.push_back(InputInstruction{.output_address = 0, .bytes = count});
  const ParametersInstruction load{.output_address = table_address, .bytes = bytes};
  if (resident) {
    executable.caching_program = {load, EndInstruction{}};
    executable.resident_parameters = std::move(table);
  } else {
    executable.inference_program.push_back(load);
    executable.streamed_parameters = std::move(table);
  }
  executable.inference_program.push_back(TableInstruction{
      .input_address = 0, .output_address = count, .count = count, .table_address = table_address});
  executable.inference_program.push_back(OutputInstruction{.input_address = count, .bytes = count});
  executable.inference_program.push_back(EndInstruction{});
  executable.activation_bytes = 2 * count + (resident ? 0 : bytes) + options.extra_activations;
  const auto layer = [count](const char* name) {
    return Layer{.name = name, .shape = {1, static_cast<int32_t>(count)}, .bytes = count};
  };
  executable.inputs = {layer("x")};
  executable.outputs = {layer("y")};
  executable.array_rows = 64;
  executable.array_columns = 64;
  // The table is node 0.
  executable.inference_nodes =
      resident ? std::vector<int32_t>{-1, 0, -1, -1} : std::vector<int32_t>{-1, 0, 0, -1, -1};
  return executable;
}

}  // namespace atollrt
