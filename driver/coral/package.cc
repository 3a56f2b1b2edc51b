// SPDX-License-Identifier: Apache-2.0
#include "driver/coral/package.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "package_generated.h"  // made from package.fbs by flatc, in the build tree
#include "runtime/base/buffer.h"
#include "runtime/base/bytes.h"
#include "runtime/base/log.h"

namespace atollrt {
namespace {

namespace schema = coral_schema;

constexpr int32_t kRuntimeVersionMin = 10;
constexpr int32_t kSeveralChips = -1;
constexpr size_t kContainerAlignment = 8;  // of the widest scalar in package.fbs
constexpr size_t kMaxExecutables = 3;
constexpr size_t kMaxLayers = 256;      // inputs and outputs together
constexpr size_t kMaxCopies = 1 << 16;  // that put the outputs together
constexpr uint32_t kMaxInterrupts = 4;
constexpr std::string_view kStateSuffix = "_variable_output";

template <typename Vector>
size_t SizeOf(const Vector* vector) {
  return vector != nullptr ? vector->size() : 0;
}

std::string_view Text(const flatbuffers::String* text) {
  return text != nullptr ? text->string_view() : std::string_view();
}

std::span<const uint8_t> Bytes(const flatbuffers::Vector<uint8_t>* bytes) {
  if (bytes == nullptr) return {};
  return {bytes->data(), bytes->size()};
}

// A container that may begin at any address, verified; `storage` keeps what the result points to.
template <typename Table>
Result<const Table*> Verify(std::span<const uint8_t> bytes, const char* what, Buffer* storage) {
  if (bytes.empty() || bytes.size() >= FLATBUFFERS_MAX_BUFFER_SIZE) {
    return CorruptModel("the %s has %zu bytes", what, bytes.size());
  }
  if (reinterpret_cast<uintptr_t>(bytes.data()) % kContainerAlignment != 0) {
    ATOLL_ASSIGN_OR_RETURN(*storage, Buffer::Allocate(bytes.size()));
    std::copy(bytes.begin(), bytes.end(), storage->data());
    bytes = storage->bytes();
  }
  flatbuffers::Verifier verifier(bytes.data(), bytes.size());
  if (!verifier.VerifyBuffer<Table>(nullptr)) {
    return CorruptModel("the %s is damaged: its %zu bytes fail the container's check", what,
                        bytes.size());
  }
  return flatbuffers::GetRoot<Table>(bytes.data());
}

// What is copied out of a package. Its tables may share what they point to, so a million chunks can
// be one of megabytes: copies are limited, before they are made, to what the whole package has.
class CopyLimit {
 public:
  explicit CopyLimit(size_t package_bytes) : package_bytes_(package_bytes) {}
  Status Add(size_t bytes, const char* what) {
    copied_ += bytes;
    if (copied_ <= package_bytes_) return {};
    return ResourceExhausted("its %s take more than the %zu bytes that the package has", what,
                             package_bytes_);
  }

 private:
  const size_t package_bytes_;
  size_t copied_ = 0;
};

// ---- Layers -------------------------------------------------------------------------------------

struct ElementTypes {
  schema::ElementType stored;
  LayerType type;
};
constexpr ElementTypes kElementTypes[] = {
    {schema::ElementType::UInt8, LayerType::kUInt8},
    {schema::ElementType::Int8, LayerType::kInt8},
    {schema::ElementType::UInt16, LayerType::kInt16},
    {schema::ElementType::Int16, LayerType::kInt16},
    {schema::ElementType::Int32, LayerType::kInt32},
    {schema::ElementType::Float16, LayerType::kFloat16},
    {schema::ElementType::Float32, LayerType::kFloat32},
};

// Shape, sizes and type; not yet where the elements of an output are.
Status ReadLayer(const schema::Layer& stored, Layer* layer, CoralLayer* wire) {
  layer->name = std::string(Text(stored.name()));
  if (stored.executions() != 1) {
    return Unsupported("it is computed %d times in an inference; only 1 is supported",
                       stored.executions());
  }
  const auto type = std::find_if(std::begin(kElementTypes), std::end(kElementTypes),
                                 [&](const auto& each) { return each.stored == stored.type(); });
  if (type == std::end(kElementTypes)) {
    return Unsupported("its element type %d is unknown", static_cast<int>(stored.type()));
  }
  layer->type = type->type;
  layer->shape = {stored.y(), stored.x(), stored.z()};
  for (const int32_t extent : layer->shape) {
    if (extent < 1) {
      return CorruptModel("its shape is %dx%dx%d, must be at least 1x1x1", stored.y(), stored.x(),
                          stored.z());
    }
  }
  layer->bytes =
      SaturatingProduct({static_cast<uint64_t>(stored.y()), static_cast<uint64_t>(stored.x()),
                         static_cast<uint64_t>(stored.z()), LayerTypeBytes(layer->type)});
  if (stored.bytes() < 1 || layer->bytes > static_cast<uint64_t>(stored.bytes())) {
    return CorruptModel("its shape %dx%dx%d has %llu bytes, on the cable it has %d", stored.y(),
                        stored.x(), stored.z(), static_cast<unsigned long long>(layer->bytes),
                        stored.bytes());
  }
  wire->wire_bytes = static_cast<uint32_t>(stored.bytes());
  wire->element_bytes = static_cast<uint32_t>(LayerTypeBytes(layer->type));
  wire->flips_sign =
      stored.type() == schema::ElementType::Int8 || stored.type() == schema::ElementType::Int16;
  return {};
}

// Appends the piece that goes behind the last one, as part of its copy if it lies in even steps.
void Append(const CoralCopy& piece, std::vector<CoralCopy>* copies) {
  if (!copies->empty()) {
    CoralCopy& last = copies->back();
    if (last.count == 1 && piece.from > last.from) last.stride = piece.from - last.from;
    if (last.from + uint64_t{last.count} * last.stride == piece.from) {
      ++last.count;
      return;
    }
  }
  copies->push_back(piece);
}

// Pieces that follow each other without gaps become one.
void Join(std::vector<CoralCopy>* copies) {
  std::vector<CoralCopy> joined;
  for (CoralCopy copy : *copies) {
    if (copy.stride == copy.bytes) {
      copy.bytes *= copy.count;
      copy.stride = copy.bytes;
      copy.count = 1;
    }
    if (!joined.empty() && copy.count == 1 && joined.back().count == 1 &&
        joined.back().from + joined.back().bytes == copy.from) {
      joined.back().bytes += copy.bytes;
      joined.back().stride = joined.back().bytes;
    } else {
      joined.push_back(copy);
    }
  }
  *copies = std::move(joined);
}

// Where the elements of an output are among the bytes that the device sends.
// `copies` is what all outputs so far are put together from.
Status ReadTiling(const schema::Layer& stored, size_t* copies, CoralLayer* wire) {
  const schema::OutputDetails* const details = stored.details_as_OutputDetails();
  if (details == nullptr) return CorruptModel("nothing says how its elements are arranged");
  if (details->slices() != nullptr) {
    return Unsupported("it comes in slices, which no known compiler for the USB stick writes");
  }
  const auto y_count = static_cast<uint32_t>(stored.y());
  const auto x_count = static_cast<uint32_t>(stored.x());
  const uint32_t piece = static_cast<uint32_t>(stored.z()) * wire->element_bytes;
  if (y_count == 1 && x_count == 1) {
    wire->copies = {{.from = 0, .to = 0, .bytes = piece, .stride = piece, .count = 1}};
    return {};
  }
  const schema::Tiling* const tiling = details->tiling();
  if (tiling == nullptr) return CorruptModel("nothing says how its elements are arranged");
  struct {
    const char* name;
    const flatbuffers::Vector<int32_t>* values;
    size_t count;  // that it must have; 0: any
  } const maps[] = {{"rows to tiles", tiling->y_tile(), y_count},
                    {"columns to tiles", tiling->x_tile(), x_count},
                    {"tiles to offsets", tiling->tile_offset(), 0},
                    {"columns to places", tiling->x_local(), x_count},
                    {"rows to places", tiling->y_local(), y_count},
                    {"columns to row sizes", tiling->row_size(), x_count}};
  for (const auto& map : maps) {
    if (map.values == nullptr || (map.count != 0 && map.values->size() != map.count)) {
      return CorruptModel("its map from %s has %zu entries for a shape of %dx%dx%d", map.name,
                          SizeOf(map.values), stored.y(), stored.x(), stored.z());
    }
    for (const int32_t value : *map.values) {
      if (value < 0) return CorruptModel("its map from %s has the entry %d", map.name, value);
    }
  }
  const auto at = [](const flatbuffers::Vector<int32_t>* map, uint64_t index) {
    return static_cast<uint64_t>(map->Get(static_cast<uint32_t>(index)));
  };
  std::vector<bool> taken(wire->wire_bytes / wire->element_bytes);
  for (uint32_t y = 0; y < y_count; ++y) {
    for (uint32_t x = 0; x < x_count; ++x) {
      const uint64_t tile = at(tiling->y_tile(), y) + at(tiling->x_tile(), x);
      if (tile >= tiling->tile_offset()->size()) {
        return CorruptModel("its element (%u, %u) is in tile %llu of %u", y, x,
                            static_cast<unsigned long long>(tile), tiling->tile_offset()->size());
      }
      const uint64_t from = at(tiling->tile_offset(), tile) +
                            at(tiling->y_local(), y) * at(tiling->row_size(), x) +
                            at(tiling->x_local(), x);
      const uint64_t elements = static_cast<uint64_t>(stored.z());
      if (from > taken.size() || elements > taken.size() - from) {
        return CorruptModel("its element (%u, %u) is at %llu of %zu", y, x,
                            static_cast<unsigned long long>(from), taken.size());
      }
      for (uint64_t i = from; i < from + elements; ++i) {
        if (taken[i]) {
          return CorruptModel("its element (%u, %u) is where another one is, at %llu", y, x,
                              static_cast<unsigned long long>(i));
        }
        taken[i] = true;
      }
      Append({.from = static_cast<uint32_t>(from) * wire->element_bytes,
              .to = (y * x_count + x) * piece,
              .bytes = piece,
              .stride = piece,
              .count = 1},
             &wire->copies);
      if (*copies + wire->copies.size() > kMaxCopies) {
        return ResourceExhausted("the outputs come in more than %zu pieces", kMaxCopies);
      }
    }
  }
  Join(&wire->copies);
  *copies += wire->copies.size();
  return {};
}

using LayerVector = flatbuffers::Vector<flatbuffers::Offset<schema::Layer>>;

Status ReadLayers(const char* kind, const LayerVector* stored, bool are_outputs, CopyLimit* names,
                  uint64_t* total_bytes, std::vector<Layer>* layers,
                  std::vector<CoralLayer>* wires) {
  size_t copies = 0;
  for (uint32_t i = 0; i < SizeOf(stored); ++i) {
    const schema::Layer& from = *stored->Get(i);
    const std::string context = Format("%s %u ", kind, i) + Quoted(Text(from.name()));
    ATOLL_RETURN_IF_ERROR(names->Add(Text(from.name()).size(), "names"));
    Layer& layer = layers->emplace_back();
    CoralLayer& wire = wires->emplace_back();
    ATOLL_RETURN_IF_ERROR(ReadLayer(from, &layer, &wire).WithContext(context));
    *total_bytes += wire.wire_bytes;
    if (*total_bytes > kCoralBuffersMax) {
      return Unsupported(
          "%s: with it, layers and scratch buffer take %llu bytes; at most %llu are "
          "supported",
          context.c_str(), static_cast<unsigned long long>(*total_bytes),
          static_cast<unsigned long long>(kCoralBuffersMax));
    }
    if (are_outputs) {
      ATOLL_RETURN_IF_ERROR(ReadTiling(from, &copies, &wire).WithContext(context));
    }
  }
  return {};
}

// ---- Programs -----------------------------------------------------------------------------------

// Layers of one direction, by name; of several with the same name, the first.
class LayerNames {
 public:
  LayerNames(const char* kind, const std::vector<Layer>& layers) : kind_(kind) {
    for (size_t i = 0; i < layers.size(); ++i) {
      by_name_.try_emplace(layers[i].name, static_cast<uint32_t>(i));
    }
  }
  // Names that many transfers share are compared once.
  Result<uint32_t> Find(const flatbuffers::String* stored) {
    const auto [known, is_new] = by_place_.try_emplace(stored, 0);
    if (!is_new) return known->second;
    const auto found = by_name_.find(Text(stored));
    if (found == by_name_.end()) {
      return CorruptModel("it names the %s %s, which does not exist", kind_,
                          Quoted(Text(stored)).c_str());
    }
    return known->second = found->second;
  }

 private:
  const char* const kind_;
  std::unordered_map<std::string_view, uint32_t> by_name_;
  std::unordered_map<const flatbuffers::String*, uint32_t> by_place_;
};

bool IsEnd(const CoralTransfer& transfer) {
  return transfer.kind == CoralTransfer::Kind::kInterrupt && transfer.index == 0;
}

// Reads one program, whose transfers move `layers` and their scratch buffer.
class ProgramReader {
 public:
  ProgramReader(const CoralExecutable& layers, CoralProgram* program)
      : layers_(layers),
        program_(*program),
        inputs_("input", layers.inputs),
        outputs_("output", layers.outputs) {}

  Status Read(const schema::Executable& stored, CopyLimit* copies);

 private:
  Status AddField(const schema::Patch& patch, uint32_t chunk);
  Status AddMove(const schema::Move& move, schema::Direction direction);
  Status Add(const schema::Transfer& stored);
  // What a list that is right transfer by transfer must be as a whole.
  Status CheckTransfers() const;

  const CoralExecutable& layers_;
  CoralProgram& program_;
  LayerNames inputs_, outputs_;
};

Status ProgramReader::AddField(const schema::Patch& patch, uint32_t chunk) {
  constexpr uint32_t kFieldBits = 32;
  const schema::Address* const address = patch.address();
  if (address == nullptr) return CorruptModel("it does not say of what it is the address");
  if (address->batch() != 0) {
    return Unsupported("it belongs to batch element %d; only batches of 1 are supported",
                       address->batch());
  }
  CoralAddressField field;
  field.chunk = chunk;
  uint32_t index = 0;
  switch (address->of()) {
    case schema::AddressOf::Input: {
      field.base = CoralAddressField::Base::kInput;
      ATOLL_ASSIGN_OR_RETURN(index, inputs_.Find(address->layer()));
      break;
    }
    case schema::AddressOf::Output: {
      field.base = CoralAddressField::Base::kOutput;
      ATOLL_ASSIGN_OR_RETURN(index, outputs_.Find(address->layer()));
      break;
    }
    case schema::AddressOf::Parameters:
      field.base = CoralAddressField::Base::kParameters;
      break;
    case schema::AddressOf::Scratch:
      field.base = CoralAddressField::Base::kScratch;
      break;
    default:
      return CorruptModel("it is the address of something of the unknown kind %d",
                          static_cast<int>(address->of()));
  }
  field.index = static_cast<uint16_t>(index);
  if (address->half() != 0 && address->half() != 1) {
    return CorruptModel("it is half %d of an address; there are 0 and 1", address->half());
  }
  field.is_upper_half = address->half() == 1;
  const uint64_t bits = uint64_t{8} * program_.chunks[chunk].size();
  if (patch.bit_offset() < 0 || static_cast<uint64_t>(patch.bit_offset()) + kFieldBits > bits) {
    return CorruptModel("it has %u bits from bit %d on, its chunk has %llu", kFieldBits,
                        patch.bit_offset(), static_cast<unsigned long long>(bits));
  }
  field.bit = static_cast<uint32_t>(patch.bit_offset());
  program_.fields.push_back(field);
  return {};
}

Status ProgramReader::AddMove(const schema::Move& move, schema::Direction direction) {
  const schema::Address* const address = move.address();
  if (address == nullptr) return CorruptModel("it does not say what it moves");
  if (address->batch() != 0) {
    return Unsupported("it belongs to batch element %d; only batches of 1 are supported",
                       address->batch());
  }
  CoralTransfer transfer;
  const char* what = "";
  uint64_t size = 0;
  bool to_device = true;
  switch (address->of()) {
    case schema::AddressOf::Input: {
      what = "the input";
      transfer.kind = CoralTransfer::Kind::kInput;
      ATOLL_ASSIGN_OR_RETURN(transfer.index, inputs_.Find(address->layer()));
      size = layers_.input_wires[transfer.index].wire_bytes;
      break;
    }
    case schema::AddressOf::Output: {
      what = "the output";
      transfer.kind = CoralTransfer::Kind::kOutput;
      ATOLL_ASSIGN_OR_RETURN(transfer.index, outputs_.Find(address->layer()));
      size = layers_.output_wires[transfer.index].wire_bytes;
      to_device = false;
      break;
    }
    case schema::AddressOf::Parameters:
      what = "the parameters";
      transfer.kind = CoralTransfer::Kind::kParameters;
      size = program_.parameters.size();
      break;
    case schema::AddressOf::Scratch:
      what = "the scratch buffer";
      to_device = direction == schema::Direction::ToDevice;
      transfer.kind =
          to_device ? CoralTransfer::Kind::kScratchIn : CoralTransfer::Kind::kScratchOut;
      size = layers_.scratch_bytes;
      break;
    default:
      return CorruptModel("it moves something of the unknown kind %d",
                          static_cast<int>(address->of()));
  }
  if (to_device != (direction == schema::Direction::ToDevice)) {
    return CorruptModel("it moves %s in the wrong direction", what);
  }
  if (move.bytes() < 1 || move.offset() < 0 || static_cast<uint64_t>(move.offset()) > size ||
      static_cast<uint64_t>(move.bytes()) > size - static_cast<uint64_t>(move.offset())) {
    return CorruptModel("it moves %d bytes from %d on of %s, which has %llu", move.bytes(),
                        move.offset(), what, static_cast<unsigned long long>(size));
  }
  transfer.offset = static_cast<uint32_t>(move.offset());
  transfer.bytes = static_cast<uint32_t>(move.bytes());
  program_.transfers.push_back(transfer);
  return {};
}

Status ProgramReader::Add(const schema::Transfer& stored) {
  // The type and the table are stored apart; only the table's bytes are verified.
  if (stored.step() == nullptr && stored.step_type() != schema::Step::NONE) {
    return CorruptModel("a step of kind %d has no content", static_cast<int>(stored.step_type()));
  }
  switch (stored.step_type()) {
    case schema::Step::Move:
      return AddMove(*stored.step_as_Move(), stored.direction());
    case schema::Step::SendChunk: {
      const auto chunk = static_cast<uint32_t>(stored.step_as_SendChunk()->chunk());
      if (chunk >= program_.chunks.size()) {
        return CorruptModel("it sends instruction chunk %d of %zu", static_cast<int>(chunk),
                            program_.chunks.size());
      }
      program_.transfers.push_back({.kind = CoralTransfer::Kind::kInstructions,
                                    .index = chunk,
                                    .bytes = static_cast<uint32_t>(program_.chunks[chunk].size())});
      return {};
    }
    case schema::Step::Interrupt: {
      const int16_t number = stored.step_as_Interrupt()->number();
      if (number < 0 || static_cast<uint32_t>(number) >= kMaxInterrupts) {
        return CorruptModel("it waits for interrupt %d of %u", number, kMaxInterrupts);
      }
      program_.transfers.push_back(
          {.kind = CoralTransfer::Kind::kInterrupt, .index = static_cast<uint32_t>(number)});
      return {};
    }
    case schema::Step::Fence:  // who does one thing after the other needs none
      return {};
    default:
      return CorruptModel("it is of the unknown kind %d", static_cast<int>(stored.step_type()));
  }
}

Status ProgramReader::CheckTransfers() const {
  const auto& transfers = program_.transfers;
  if (transfers.empty() || transfers[0].kind != CoralTransfer::Kind::kInstructions) {
    return CorruptModel("its list of transfers does not begin with instructions");
  }
  const auto end = std::find_if(transfers.begin(), transfers.end(), IsEnd);
  if (end == transfers.end() || end + 1 != transfers.end()) {
    return CorruptModel("its list of %zu transfers does not end with the first interrupt 0",
                        transfers.size());
  }
  std::vector<bool> is_sent(program_.chunks.size());
  for (const CoralTransfer& transfer : transfers) {
    if (transfer.kind == CoralTransfer::Kind::kInstructions) is_sent[transfer.index] = true;
  }
  if (const auto missing = std::find(is_sent.begin(), is_sent.end(), false);
      missing != is_sent.end()) {
    return CorruptModel("its instruction chunk %td of %zu is never sent", missing - is_sent.begin(),
                        is_sent.size());
  }
  for (size_t output = 0; output < layers_.outputs.size(); ++output) {
    std::vector<std::pair<uint64_t, uint64_t>> windows;
    uint64_t sum = 0;
    for (const CoralTransfer& transfer : transfers) {
      if (transfer.kind != CoralTransfer::Kind::kOutput || transfer.index != output) continue;
      windows.emplace_back(transfer.offset, transfer.bytes);
      sum += transfer.bytes;
    }
    std::sort(windows.begin(), windows.end());
    uint64_t covered = 0;
    for (const auto& [offset, bytes] : windows) {
      if (offset != covered) break;
      covered += bytes;
    }
    const uint32_t wanted = layers_.output_wires[output].wire_bytes;
    if (covered != wanted || sum != wanted) {
      return CorruptModel(
          "output %zu %s has %u bytes, of which its transfers give %llu in one "
          "piece and %llu in all",
          output, Quoted(layers_.outputs[output].name).c_str(), wanted,
          static_cast<unsigned long long>(covered), static_cast<unsigned long long>(sum));
    }
  }
  return {};
}

Status ProgramReader::Read(const schema::Executable& stored, CopyLimit* copies) {
  for (uint32_t i = 0; i < SizeOf(stored.chunks()); ++i) {
    const std::span<const uint8_t> chunk = Bytes(stored.chunks()->Get(i)->instructions());
    if (chunk.empty()) return CorruptModel("its instruction chunk %u is empty", i);
    ATOLL_RETURN_IF_ERROR(copies->Add(chunk.size(), "instruction chunks"));
    program_.chunks.emplace_back(chunk.begin(), chunk.end());
    const auto* const patches = stored.chunks()->Get(i)->patches();
    ATOLL_RETURN_IF_ERROR(
        copies->Add(SizeOf(patches) * sizeof(CoralAddressField), "address fields"));
    for (uint32_t k = 0; k < SizeOf(patches); ++k) {
      ATOLL_RETURN_IF_ERROR(
          AddField(*patches->Get(k), i)
              .WithContext(Format("address field %u of instruction chunk %u", k, i)));
    }
  }
  const std::span<const uint8_t> parameters = Bytes(stored.parameters());
  ATOLL_RETURN_IF_ERROR(copies->Add(parameters.size(), "instructions and parameters"));
  program_.parameters.assign(parameters.begin(), parameters.end());
  const schema::Transfers* const transfers = stored.transfers();
  if (transfers == nullptr || !transfers->complete()) {
    return Unsupported(
        "its list of transfers is incomplete, as that of models with recurrent state (LSTM): which "
        "transfer comes next would be for the device to say, and Corals on USB do not by default. "
        "Run the model that it was compiled from");
  }
  for (uint32_t i = 0; i < SizeOf(transfers->list()); ++i) {
    ATOLL_RETURN_IF_ERROR(Add(*transfers->list()->Get(i)).WithContext(Format("transfer %u", i)));
  }
  return CheckTransfers();
}

// ---- Executables --------------------------------------------------------------------------------

const char* RoleName(schema::Role role) {
  constexpr const char* kNames[] = {"stand-alone executable", "parameter-caching executable",
                                    "inference executable"};
  return kNames[std::min(static_cast<size_t>(role), std::size(kNames) - 1)];
}

Status ReadInference(const schema::Executable& stored, CopyLimit* copies,
                     CoralExecutable* executable) {
  if (stored.batch() != 1) {
    return Unsupported("it is compiled for batches of %d; only batches of 1 are supported",
                       stored.batch());
  }
  const size_t layers = SizeOf(stored.inputs()) + SizeOf(stored.outputs());
  if (layers > kMaxLayers) {
    return Unsupported("it has %zu inputs and outputs; at most %zu are supported", layers,
                       kMaxLayers);
  }
  if (stored.scratch_bytes() < 0) {
    return CorruptModel("its scratch buffer has %d bytes", stored.scratch_bytes());
  }
  executable->scratch_bytes = static_cast<uint32_t>(stored.scratch_bytes());
  uint64_t total = executable->scratch_bytes;
  if (total > kCoralBuffersMax) {
    return Unsupported("its scratch buffer has %llu bytes; at most %llu are supported",
                       static_cast<unsigned long long>(total),
                       static_cast<unsigned long long>(kCoralBuffersMax));
  }
  ATOLL_RETURN_IF_ERROR(ReadLayers("input", stored.inputs(), false, copies, &total,
                                   &executable->inputs, &executable->input_wires));
  ATOLL_RETURN_IF_ERROR(ReadLayers("output", stored.outputs(), true, copies, &total,
                                   &executable->outputs, &executable->output_wires));
  for (const Layer& output : executable->outputs) {
    for (const Layer& input : executable->inputs) {
      if (output.name == input.name + std::string(kStateSuffix)) {
        return Unsupported(
            "its output %s is the next state of its input (LSTM), which is not supported. Run the "
            "model that it was compiled from",
            Quoted(output.name).c_str());
      }
    }
  }
  executable->estimated_cycles = static_cast<uint64_t>(
      std::max<int64_t>({stored.cycles(), int64_t{stored.cycles_32()}, int64_t{0}}));
  return ProgramReader(*executable, &executable->inference).Read(stored, copies);
}

Status ReadCaching(const schema::Executable& stored, CopyLimit* copies,
                   CoralExecutable* executable) {
  if (stored.caching_token() == 0) return CorruptModel("it has no caching token");
  if (stored.caching_token() != executable->caching_token) {
    return CorruptModel("its caching token is %016llx, that of the inference executable %016llx",
                        static_cast<unsigned long long>(stored.caching_token()),
                        static_cast<unsigned long long>(executable->caching_token));
  }
  return ProgramReader(CoralExecutable(), &executable->caching).Read(stored, copies);
}

// By their roles, one of each at most; an inference executable or one that stands alone is there.
using Roles = std::array<const schema::Executable*, 3>;
const schema::Executable*& Of(Roles* roles, schema::Role role) {
  return (*roles)[static_cast<size_t>(role)];
}

Status AssignRoles(const std::vector<const schema::Executable*>& executables, Roles* roles) {
  if (executables.size() == 1) {  // whatever it calls itself
    Of(roles, schema::Role::StandAlone) = executables[0];
    return {};
  }
  for (const schema::Executable* const executable : executables) {
    const schema::Role role = executable->role();
    if (static_cast<size_t>(role) >= roles->size()) {
      return CorruptModel("an executable has the unknown role %d", static_cast<int>(role));
    }
    if (std::exchange(Of(roles, role), executable) != nullptr) {
      return CorruptModel("the package has more than one %s", RoleName(role));
    }
  }
  if (Of(roles, schema::Role::StandAlone) != nullptr) return {};
  for (const schema::Role role : {schema::Role::Caching, schema::Role::Inference}) {
    if (Of(roles, role) == nullptr) {
      return CorruptModel("the package lacks a %s", RoleName(role));
    }
  }
  return {};
}

Result<CoralExecutable> ReadBundle(const schema::Bundle& bundle, size_t package_bytes) {
  const size_t count = SizeOf(bundle.executables());
  if (count == 0 || count > kMaxExecutables) {
    return CorruptModel("the package has %zu executables, must be 1 to %zu", count,
                        kMaxExecutables);
  }
  std::vector<Buffer> storage(count);
  std::vector<const schema::Executable*> executables;
  for (uint32_t i = 0; i < count; ++i) {
    const std::string_view text = Text(bundle.executables()->Get(i));
    ATOLL_ASSIGN_OR_RETURN(
        const auto* executable,
        Verify<schema::Executable>({reinterpret_cast<const uint8_t*>(text.data()), text.size()},
                                   Format("executable %u of the package", i).c_str(), &storage[i]));
    executables.push_back(executable);
  }
  Roles roles{};
  ATOLL_RETURN_IF_ERROR(AssignRoles(executables, &roles));
  CoralExecutable executable;
  CopyLimit copies(package_bytes);
  const schema::Executable* const stand_alone = Of(&roles, schema::Role::StandAlone);
  const bool stands_alone = stand_alone != nullptr;
  const schema::Executable& inference =
      stands_alone ? *stand_alone : *Of(&roles, schema::Role::Inference);
  executable.caching_token = stands_alone ? 0 : inference.caching_token();
  ATOLL_RETURN_IF_ERROR(
      ReadInference(inference, &copies, &executable).WithContext(RoleName(inference.role())));
  if (!stands_alone) {
    ATOLL_RETURN_IF_ERROR(ReadCaching(*Of(&roles, schema::Role::Caching), &copies, &executable)
                              .WithContext(RoleName(schema::Role::Caching)));
  }
  return executable;
}

}  // namespace

Result<CoralExecutable> ReadCoralPackage(std::span<const uint8_t> bytes) {
  Buffer package_storage;
  ATOLL_ASSIGN_OR_RETURN(const auto* package,
                         Verify<schema::Package>(bytes, "package", &package_storage));
  if (package->runtime_version() > kCoralRuntimeVersion) {
    return Unsupported(
        "the package asks for runtime version %d, newest known is %d; compile the model again with "
        "edgetpu_compiler -m %d",
        package->runtime_version(), kCoralRuntimeVersion, kCoralRuntimeVersion);
  }
  if (package->chip() == kSeveralChips || SizeOf(package->chips()) != 0) {
    return Unsupported(
        "the package is for several chips at once; compile the model again for one, or into "
        "segments with edgetpu_compiler --num_segments");
  }
  if (package->runtime_version() < kRuntimeVersionMin) {
    Log(LogSeverity::kWarning, "the package asks for runtime version %d, oldest known is %d",
        package->runtime_version(), kRuntimeVersionMin);
  }
  Buffer bundle_storage;
  ATOLL_ASSIGN_OR_RETURN(
      const auto* bundle,
      Verify<schema::Bundle>(Bytes(package->bundle()), "list of executables in the package",
                             &bundle_storage));
  return ReadBundle(*bundle, bytes.size());
}

}  // namespace atollrt
