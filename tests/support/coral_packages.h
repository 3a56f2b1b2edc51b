// SPDX-License-Identifier: Apache-2.0
//
// Packages as edgetpu_compiler writes them, made of a description, good or bad. The instructions
// inside are any bytes: nothing here executes them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "driver/coral/package.h"  // reads them

namespace atollrt {

// Numbers of the format (driver/coral/package.fbs).
struct PackedLayer {
  std::string name = {};
  int32_t bytes = 0;  // on the cable
  int32_t y = 1, x = 1, z = 1;
  int16_t type = 0;  // 0: uint8, 8: int8, 9: int16
  int32_t executions = 1;
  bool has_tiling = false;
  std::vector<int32_t> tiling[6] = {};
  bool has_slices = false;
};

struct PackedTransfer {
  enum Kind : uint8_t { kNone = 0, kMove = 1, kChunk = 2, kInterrupt = 3, kFence = 4 };
  Kind kind = kMove;
  int16_t of = 0;  // kMove: 0 output, 1 input, 2 parameters, 3 scratch
  std::string layer = {};
  int32_t offset = 0, bytes = 0;
  int32_t number = 0;     // of the chunk or interrupt
  int16_t direction = 0;  // 1: from the device
  int32_t batch = 0;
  bool has_address = true;
};
PackedTransfer SendsChunk(int32_t number = 0);
PackedTransfer SendsInput(std::string layer, int32_t offset, int32_t bytes);
PackedTransfer SendsParameters(int32_t offset, int32_t bytes);
PackedTransfer GivesOutput(std::string layer, int32_t offset, int32_t bytes);
PackedTransfer MovesScratch(int16_t direction, int32_t offset, int32_t bytes);
PackedTransfer Interrupts(int32_t number = 0);
PackedTransfer Fences();

// An address in the instructions.
struct PackedField {
  int32_t chunk = 0;
  int16_t of = 0;  // 0 output, 1 input, 2 parameters, 3 scratch
  std::string layer = {};
  int16_t half = 0;  // 1: the upper one
  int32_t bit = 0;
  int32_t batch = 0;
  bool has_address = true;
};
// Both halves of one, at `bit` and 64 bits behind.
std::vector<PackedField> AddressAt(int32_t chunk, int32_t bit, int16_t of, std::string layer = {});

struct PackedExecutable {
  int16_t role = 0;  // 0: stands alone, 1: caches parameters, 2: inference
  uint64_t token = 0;
  int32_t batch = 1;
  int32_t scratch_bytes = 0;
  std::vector<std::vector<uint8_t>> chunks = {};
  std::vector<PackedField> fields = {};
  std::vector<uint8_t> parameters = {};
  std::vector<PackedTransfer> transfers = {};
  bool complete = true;
  bool has_transfers = true;
  std::vector<PackedLayer> inputs = {};
  std::vector<PackedLayer> outputs = {};
  // So many more places in the lists have the first chunk or input, which are stored once.
  size_t more_chunks = 0, more_inputs = 0;
};

struct PackedModel {
  int32_t runtime_version = 13;
  int32_t chip = 0;
  bool for_several_chips = false;
  std::vector<PackedExecutable> executables = {};
};

std::vector<uint8_t> WritePackage(const PackedModel& model);
// The options of an operator edgetpu-custom-op with that package and so many more.
std::vector<uint8_t> WriteCoralOptions(const std::vector<uint8_t>& package, int more_packages = 0);

// 12 uint8 "in" as 2x2x3, 4 parameters, to 5 uint8 "out", in one executable.
PackedModel StandAloneModel();
// int8 "in" of 6, to int8 "out" of 2x3x2 in two tiles, 8 cached parameters, 4 streamed ones.
PackedModel CachingModel(uint64_t token, uint8_t mark = 0);
// The same models with room in their instructions for the addresses that they need on PCIe, and
// with those.
PackedModel WithAddresses(PackedModel model);

}  // namespace atollrt
