// SPDX-License-Identifier: Apache-2.0
#include "tests/support/coral_packages.h"

#include <flatbuffers/flexbuffers.h>

#include <algorithm>
#include <string_view>

#include "package_generated.h"

namespace atollrt {
namespace {

namespace schema = coral_schema;
using Builder = flatbuffers::FlatBufferBuilder;

flatbuffers::Offset<schema::Layer> WriteLayer(Builder& b, const PackedLayer& layer,
                                              bool is_output) {
  flatbuffers::Offset<void> details;
  if (is_output) {
    flatbuffers::Offset<schema::Tiling> tiling;
    if (layer.has_tiling) {
      flatbuffers::Offset<flatbuffers::Vector<int32_t>> maps[6];
      for (int i = 0; i < 6; ++i) maps[i] = b.CreateVector(layer.tiling[i]);
      tiling = schema::CreateTiling(b, maps[0], maps[1], maps[2], maps[3], maps[4], maps[5]);
    }
    flatbuffers::Offset<schema::Slices> slices;
    if (layer.has_slices) slices = schema::CreateSlices(b);
    details = schema::CreateOutputDetails(b, tiling, 0, slices).Union();
  } else {
    details = schema::CreateInputDetails(b).Union();
  }
  const auto name = b.CreateString(layer.name);
  return schema::CreateLayer(
      b, name, layer.bytes, layer.y, layer.x, layer.z, 0,
      static_cast<schema::ElementType>(layer.type),
      is_output ? schema::Details::OutputDetails : schema::Details::InputDetails, details,
      layer.executions);
}

flatbuffers::Offset<schema::Transfer> WriteTransfer(Builder& b, const PackedTransfer& transfer) {
  flatbuffers::Offset<void> step;
  switch (transfer.kind) {
    case PackedTransfer::kMove: {
      const auto layer = b.CreateString(transfer.layer);
      flatbuffers::Offset<schema::Address> address;
      if (transfer.has_address) {
        address = schema::CreateAddress(b, static_cast<schema::AddressOf>(transfer.of),
                                        transfer.batch, layer);
      }
      step = schema::CreateMove(b, address, transfer.offset, transfer.bytes).Union();
      break;
    }
    case PackedTransfer::kChunk:
      step = schema::CreateSendChunk(b, transfer.number).Union();
      break;
    case PackedTransfer::kInterrupt:
      step = schema::CreateInterrupt(b, static_cast<int16_t>(transfer.number)).Union();
      break;
    default:
      step = schema::CreateFence(b).Union();
      break;
  }
  return schema::CreateTransfer(b, static_cast<schema::Step>(transfer.kind), step,
                                static_cast<schema::Direction>(transfer.direction));
}

std::vector<uint8_t> Finish(Builder& b) {
  return {b.GetBufferPointer(), b.GetBufferPointer() + b.GetSize()};
}

std::vector<uint8_t> WriteExecutable(const PackedExecutable& executable) {
  Builder b;
  std::vector<flatbuffers::Offset<schema::Chunk>> chunks;
  for (size_t i = 0; i < executable.chunks.size(); ++i) {
    std::vector<flatbuffers::Offset<schema::Patch>> patches;
    for (const PackedField& field : executable.fields) {
      if (field.chunk != static_cast<int32_t>(i)) continue;
      flatbuffers::Offset<schema::Address> address;
      if (field.has_address) {
        address = schema::CreateAddress(b, static_cast<schema::AddressOf>(field.of), field.batch,
                                        b.CreateString(field.layer), field.half);
      }
      patches.push_back(schema::CreatePatch(b, address, field.bit));
    }
    const auto instructions = b.CreateVector(executable.chunks[i]);
    chunks.push_back(schema::CreateChunk(b, instructions, b.CreateVector(patches)));
  }
  for (size_t i = 0; i < executable.more_chunks; ++i) chunks.push_back(chunks[0]);
  std::vector<flatbuffers::Offset<schema::Transfer>> transfers;
  for (const PackedTransfer& transfer : executable.transfers) {
    transfers.push_back(WriteTransfer(b, transfer));
  }
  std::vector<flatbuffers::Offset<schema::Layer>> inputs, outputs;
  for (const PackedLayer& layer : executable.inputs) inputs.push_back(WriteLayer(b, layer, false));
  for (const PackedLayer& layer : executable.outputs) outputs.push_back(WriteLayer(b, layer, true));
  for (size_t i = 0; i < executable.more_inputs; ++i) inputs.push_back(inputs[0]);
  const auto stored_chunks = b.CreateVector(chunks);
  const auto parameters = b.CreateVector(executable.parameters);
  flatbuffers::Offset<schema::Transfers> list;
  if (executable.has_transfers) {
    list = schema::CreateTransfers(b, b.CreateVector(transfers), executable.complete);
  }
  const auto stored_inputs = b.CreateVector(inputs);
  const auto stored_outputs = b.CreateVector(outputs);
  b.Finish(schema::CreateExecutable(b, 0, 0, 0, executable.batch, executable.scratch_bytes,
                                    stored_chunks, parameters, list, stored_inputs, stored_outputs,
                                    0, 0, 0, static_cast<schema::Role>(executable.role),
                                    executable.token));
  return Finish(b);
}

}  // namespace

PackedTransfer SendsChunk(int32_t number) {
  return {.kind = PackedTransfer::kChunk, .number = number};
}
PackedTransfer SendsInput(std::string layer, int32_t offset, int32_t bytes) {
  return {.of = 1, .layer = std::move(layer), .offset = offset, .bytes = bytes};
}
PackedTransfer SendsParameters(int32_t offset, int32_t bytes) {
  return {.of = 2, .offset = offset, .bytes = bytes};
}
PackedTransfer GivesOutput(std::string layer, int32_t offset, int32_t bytes) {
  return {.of = 0, .layer = std::move(layer), .offset = offset, .bytes = bytes, .direction = 1};
}
PackedTransfer MovesScratch(int16_t direction, int32_t offset, int32_t bytes) {
  return {.of = 3, .offset = offset, .bytes = bytes, .direction = direction};
}
PackedTransfer Interrupts(int32_t number) {
  return {.kind = PackedTransfer::kInterrupt, .number = number};
}
PackedTransfer Fences() { return {.kind = PackedTransfer::kFence}; }

std::vector<PackedField> AddressAt(int32_t chunk, int32_t bit, int16_t of, std::string layer) {
  PackedField lower{.chunk = chunk, .of = of, .layer = std::move(layer), .bit = bit};
  PackedField upper = lower;
  upper.half = 1;
  upper.bit += 64;
  return {lower, upper};
}

std::vector<uint8_t> WritePackage(const PackedModel& model) {
  Builder bundle;
  std::vector<flatbuffers::Offset<flatbuffers::String>> executables;
  for (const PackedExecutable& executable : model.executables) {
    const std::vector<uint8_t> bytes = WriteExecutable(executable);
    executables.push_back(
        bundle.CreateString(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  bundle.Finish(schema::CreateBundle(bundle, bundle.CreateVector(executables)));
  Builder b;
  const auto stored = b.CreateVector(Finish(bundle));
  flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<schema::ChipPackage>>> chips;
  if (model.for_several_chips) {
    const std::vector<flatbuffers::Offset<schema::ChipPackage>> two(2,
                                                                    schema::CreateChipPackage(b));
    chips = b.CreateVector(two);
  }
  b.Finish(schema::CreatePackage(b, model.runtime_version, stored, 0, 0, 0, model.chip, chips),
           schema::PackageIdentifier());
  return Finish(b);
}

std::vector<uint8_t> WriteCoralOptions(const std::vector<uint8_t>& package, int more_packages) {
  flexbuffers::Builder b;
  b.Map([&] {
    b.Int("1", 0);
    b.Key("4");
    b.String(std::string(package.begin(), package.end()));  // which ends with a zero, as it needs
    b.Int("5", -1);
    b.Vector("7", [&] {
      for (int i = 0; i < more_packages; ++i) b.String("more");
    });
  });
  b.Finish();
  return b.GetBuffer();
}

PackedModel StandAloneModel() {
  return {
      .executables = {{.role = 0,
                       .chunks = {{0x51, 0x52, 0x53}},
                       .parameters = {1, 2, 3, 4},
                       .transfers = {SendsChunk(), SendsInput("in", 0, 16), SendsParameters(0, 4),
                                     GivesOutput("out", 0, 8), Interrupts()},
                       .inputs = {{.name = "in", .bytes = 16, .y = 2, .x = 2, .z = 3}},
                       .outputs = {{.name = "out", .bytes = 8, .z = 5}}}}};
}

PackedModel CachingModel(uint64_t token, uint8_t mark) {
  const PackedLayer output{.name = "out",
                           .bytes = 24,
                           .y = 2,
                           .x = 3,
                           .z = 2,
                           .type = 8,
                           .has_tiling = true,
                           // Columns 0 and 1 in one tile of rows of 8, column 2 in another, from 16
                           // on, of rows of 4: four bytes for each element.
                           .tiling = {{0, 0}, {0, 0, 1}, {0, 16}, {0, 4, 0}, {0, 1}, {8, 8, 4}}};
  return {.executables = {{.role = 2,
                           .token = token,
                           .chunks = {{0x21, mark}, {0x22, mark}},
                           .parameters = {9, 9, 8, 8},
                           .transfers = {SendsChunk(0), SendsInput("in", 0, 8),
                                         GivesOutput("out", 0, 16), Fences(), SendsParameters(0, 4),
                                         SendsChunk(1), GivesOutput("out", 16, 8), Interrupts()},
                           .inputs = {{.name = "in", .bytes = 8, .z = 6, .type = 8}},
                           .outputs = {output}},
                          {.role = 1,
                           .token = token,
                           .chunks = {{0x11, mark}},
                           .parameters = {1, 2, 3, 4, 5, 6, 7, 8},
                           .transfers = {SendsChunk(), SendsParameters(0, 8), Interrupts()}}}};
}

PackedModel WithAddresses(PackedModel model) {
  constexpr size_t kBundleBytes = 16;
  constexpr int32_t kBit = 70;  // of a bundle, as Google's compiler has it
  for (PackedExecutable& executable : model.executables) {
    // In the first chunk: of all that is moved, two bundles each.
    std::vector<PackedField>& fields = executable.fields;
    const auto add = [&](int16_t of, const std::string& layer) {
      const auto bit = static_cast<int32_t>(fields.size() / 2 * 2 * kBundleBytes * 8) + kBit;
      for (PackedField& field : AddressAt(0, bit, of, layer)) fields.push_back(std::move(field));
    };
    for (const PackedLayer& input : executable.inputs) add(1, input.name);
    for (const PackedLayer& output : executable.outputs) add(0, output.name);
    add(2, "");
    add(3, "");
    for (auto& chunk : executable.chunks) {
      chunk.resize(std::max(chunk.size(), (fields.size() + 1) * kBundleBytes));
    }
  }
  return model;
}

}  // namespace atollrt
