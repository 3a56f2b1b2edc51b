// SPDX-License-Identifier: Apache-2.0
//
// LSTM as docs/isa.md §3 has it, written out here once more, against the emulated device.
#include <array>

#include "driver/emulator/isa_arithmetic.h"
#include "tests/driver/emulator/emulated_program.h"
#include "tests/support/rng.h"

namespace atollrt {

using isa::Between;
using isa::Mbqm;
using isa::Product16;
using isa::Rdpot;
using isa::Sat16;
using isa::Wrap;

namespace {

// ---- The functions of the page ----

int64_t Exp(int64_t a, int64_t k) {
  if (a == 0) return 32767;
  if (k > 5 && a < -32 * (int64_t{1} << (15 - k))) return 0;
  const int64_t quarter = int64_t{1} << (13 - k);
  const int64_t m = (a & (quarter - 1)) - quarter;
  const int64_t x = m * (int64_t{1} << k) + 4096;
  const int64_t x2 = Product16(x, x);
  const int64_t z = Rdpot(Product16(Rdpot(Product16(x2, x2), 2) + Product16(x2, x), 10923) + x2, 1);
  int64_t r = Sat16(28918 + Product16(28918, x + z));
  const int64_t factors[] = {25520, 19875, 12055, 4435, 600, 11, 0};
  for (int64_t j = -2; j <= 4; ++j) {
    if (j < k && ((m - a) >> (15 - k + j)) % 2 == 1) r = Product16(r, factors[j + 2]);
  }
  return r;
}

int64_t Inv(int64_t e) {
  const int64_t v = (e + 32768) >> 1;
  int64_t x = 23130 + Product16(v, -15420);
  for (int i = 0; i < 3; ++i) x = x + Sat16(4 * Product16(x, 8192 - Product16(v, x)));
  return x;
}

int64_t Logistic(int64_t a) {
  if (a == 0) return 16384;
  const int64_t s = Sat16(2 * Inv(Exp(-std::abs(a), 3)));
  return a > 0 ? s : 32767 - s;
}

int64_t Tanh(int64_t a, int64_t k) {
  if (a == 0) return 0;
  const int64_t t = Sat16(4 * (Inv(Exp(-std::abs(a), k + 1)) - 8192));
  return a > 0 ? t : -t;
}

// ---- An instruction with everything that it reads ----

struct LstmLayer {
  LstmInstruction op;
  Bytes input, weights, records, hidden, cell;
};

struct Outcome {
  Bytes output, hidden, cell;
  bool operator==(const Outcome&) const = default;
};

int64_t Int8(const Bytes& bytes, size_t at) { return static_cast<int8_t>(bytes[at]); }

Outcome Expected(const LstmLayer& layer) {
  const LstmInstruction& op = layer.op;
  Outcome outcome = {Bytes(size_t{op.batch} * op.steps * op.units), layer.hidden, layer.cell};
  const size_t recurrent = size_t{4} * op.units * op.inputs;  // where R begins
  const auto product = [&](size_t which, size_t row, int64_t sum) {
    const uint8_t* record = &layer.records[(which * 4 * op.units + row) * kChannelRecordBytes];
    return Mbqm(Wrap(sum + LoadLittleEndian<int32_t>(record)),
                LoadLittleEndian<int32_t>(record + 4), LoadLittleEndian<int32_t>(record + 8));
  };
  for (size_t b = 0; b < op.batch; ++b) {
    for (size_t s = 0; s < op.steps; ++s) {
      const size_t position = op.time_major != 0 ? s * op.batch + b : b * op.steps + s;
      std::vector<int64_t> a(size_t{4} * op.units);
      for (size_t row = 0; row < a.size(); ++row) {
        int64_t from_input = 0, from_hidden = 0;
        for (size_t k = 0; k < op.inputs; ++k) {
          from_input += Int8(layer.weights, row * op.inputs + k) *
                        Int8(layer.input, position * op.inputs + k);
        }
        for (size_t k = 0; k < op.units; ++k) {
          from_hidden += Int8(layer.weights, recurrent + row * op.units + k) *
                         Int8(outcome.hidden, b * op.units + k);
        }
        a[row] = Sat16(Sat16(product(0, row, from_input)) + product(1, row, from_hidden));
      }
      for (size_t u = 0; u < op.units; ++u) {
        const int64_t i = Logistic(a[u]);
        const int64_t f = Logistic(a[op.units + u]);
        const int64_t d = Tanh(a[2 * op.units + u], 3);
        const int64_t o = Logistic(a[3 * op.units + u]);
        uint8_t* cell = &outcome.cell[2 * (b * op.units + u)];
        int64_t c = Sat16(Rdpot(f * LoadLittleEndian<int16_t>(cell), 15) +
                          Rdpot(i * d, 15 + op.cell_integer_bits));
        if (op.cell_clip > 0) c = Between(c, -int64_t{op.cell_clip}, op.cell_clip);
        StoreLittleEndian(cell, static_cast<int16_t>(c));
        const int64_t t =
            Mbqm(o * Tanh(c, op.cell_integer_bits), op.hidden_multiplier, op.hidden_exponent);
        const uint8_t h = static_cast<uint8_t>(Between(t + op.hidden_zero_point, -128, 127));
        outcome.hidden[b * op.units + u] = h;
        outcome.output[position * op.units + u] = h;
      }
    }
  }
  return outcome;
}

// Multipliers mostly such that gates see all of the functions' range.
Bytes RandomRecords(Rng& rng, size_t count) {
  Bytes records(count * kChannelRecordBytes);
  for (size_t i = 0; i < count; ++i) {
    uint8_t* record = &records[i * kChannelRecordBytes];
    StoreLittleEndian<int32_t>(
        record, rng.OneIn(20) ? rng.Int32(INT32_MIN, INT32_MAX) : rng.Int32(-20000, 20000));
    StoreLittleEndian<int32_t>(record + 4, rng.OneIn(10) ? 0 : rng.Int32(1 << 30, INT32_MAX));
    StoreLittleEndian<int32_t>(record + 8, rng.OneIn(20) ? rng.Int32(-31, 127) : rng.Int32(-4, 1));
  }
  return records;
}

LstmLayer RandomLayer(Rng& rng) {
  LstmLayer layer;
  LstmInstruction& op = layer.op;
  op.batch = static_cast<uint32_t>(rng.Int(1, 3));
  op.steps = static_cast<uint32_t>(rng.Int(1, 6));
  op.inputs = static_cast<uint32_t>(rng.Int(1, rng.OneIn(4) ? 40 : 8));
  op.units = static_cast<uint32_t>(rng.Int(1, rng.OneIn(4) ? 20 : 6));
  op.time_major = static_cast<uint32_t>(rng.Int(0, 1));
  op.cell_integer_bits = static_cast<uint32_t>(rng.Int(0, 6));
  if (rng.OneIn(3)) op.cell_clip = static_cast<uint32_t>(rng.Int(1, 32767));
  op.hidden_multiplier = rng.OneIn(20) ? 0 : rng.Int32(1 << 30, INT32_MAX);
  op.hidden_exponent = rng.OneIn(10) ? rng.Int32(-31, 127) : rng.Int32(-24, -20);
  op.hidden_zero_point = rng.Int32(-128, 127);
  const auto fill = [&](Bytes* bytes, size_t count) {
    bytes->resize(count);
    rng.Fill(*bytes);
  };
  fill(&layer.input, size_t{op.batch} * op.steps * op.inputs);
  fill(&layer.weights, size_t{4} * op.units * (op.inputs + op.units));
  fill(&layer.hidden, size_t{op.batch} * op.units);
  fill(&layer.cell, size_t{2} * op.batch * op.units);
  layer.records = RandomRecords(rng, size_t{8} * op.units);
  return layer;
}

// Consecutive tensors, at odd addresses.
Outcome RunLayer(Core& core, LstmLayer layer) {
  LstmInstruction& op = layer.op;
  uint32_t end = 1;
  const auto place = [&](uint32_t* address, size_t bytes) {
    *address = end;
    end += static_cast<uint32_t>(bytes);
  };
  const size_t output_bytes = size_t{op.batch} * op.steps * op.units;
  place(&op.hidden_address, layer.hidden.size());
  place(&op.cell_address, layer.cell.size());
  place(&op.output_address, output_bytes);
  place(&op.input_address, layer.input.size());
  place(&op.weight_address, layer.weights.size());
  place(&op.channel_address, layer.records.size());
  const auto count = [](size_t bytes) { return static_cast<uint32_t>(bytes); };
  Bytes inputs = layer.hidden;
  Append(inputs, layer.cell);
  Bytes rest = layer.input;
  Append(rest, layer.weights);
  Append(rest, layer.records);
  Bytes stream = inputs;
  Append(stream, rest);
  const RunResult result = RunProgram(
      core,
      {InputInstruction{.output_address = op.hidden_address, .bytes = count(inputs.size())},
       InputInstruction{.output_address = op.input_address, .bytes = count(rest.size())}, op,
       OutputInstruction{.input_address = op.hidden_address,
                         .bytes = count(inputs.size() + output_bytes)}},
      {.inputs = stream});
  EXPECT_EQ(result.event.kind, EventKind::kCompleted) << FaultCodeName(result.event.fault);
  const auto hidden_end = result.outputs.begin() + static_cast<ptrdiff_t>(layer.hidden.size());
  const auto cell_end = hidden_end + static_cast<ptrdiff_t>(layer.cell.size());
  return {Bytes(cell_end, result.outputs.end()), Bytes(result.outputs.begin(), hidden_end),
          Bytes(hidden_end, cell_end)};
}

// ---- Tests ----

TEST(LstmInstruction, ComputesWhatThePageSays) {
  Rng rng(TestSeed(41));
  const auto direct = MakeCore();
  const auto stepped = MakeCore({.profile = SmallProfile(), .face = Face::kStepped});
  for (int round = 0; round < 300; ++round) {
    const LstmLayer layer = RandomLayer(rng);
    SCOPED_TRACE("round " + std::to_string(round) + ": " + Disassemble(layer.op));
    const Outcome expected = Expected(layer);
    ASSERT_EQ(RunLayer(*direct, layer), expected);
    if (round % 10 == 0) {
      ASSERT_EQ(RunLayer(*stepped, layer), expected);
    }
  }
}

// A layer without weights whose preactivations are biases: value(gate, unit).
template <typename Value>
LstmLayer LayerOfBiases(uint32_t batch, uint32_t units, const Value& value) {
  LstmLayer layer;
  layer.op = {.batch = batch,
              .steps = 1,
              .inputs = 1,
              .units = units,
              .hidden_multiplier = 1 << 30,
              .hidden_exponent = -21};
  layer.input.resize(batch);
  layer.weights.resize(size_t{4} * units * (1 + units));
  layer.hidden.resize(size_t{batch} * units);
  layer.cell.resize(size_t{2} * batch * units);
  layer.records.resize(size_t{8} * units * kChannelRecordBytes);
  for (uint32_t row = 0; row < 4 * units; ++row) {
    uint8_t* record = &layer.records[row * kChannelRecordBytes];
    StoreLittleEndian<int32_t>(record, value(row / units, row % units));
    StoreLittleEndian<int32_t>(record + 4, 1 << 30);
    StoreLittleEndian<int32_t>(record + 8, 1);
  }
  return layer;
}

TEST(LstmInstruction, KnowsTheFunctionsOfGatesEverywhere) {
  const auto core = MakeCore({.profile = *FindDeviceProfile("")});
  constexpr int32_t kUnits = 128;
  for (int32_t first = -32768; first < 32768; first += kUnits) {
    LstmLayer layer = LayerOfBiases(
        2, kUnits, [&](uint32_t, uint32_t unit) { return first + static_cast<int32_t>(unit); });
    // Two cells, so that it shows what the forget gate does.
    for (size_t u = 0; u < kUnits; ++u) {
      StoreLittleEndian<int16_t>(&layer.cell[2 * u], 32767);
      StoreLittleEndian<int16_t>(&layer.cell[2 * (kUnits + u)], -32768);
    }
    ASSERT_EQ(RunLayer(*core, layer), Expected(layer)) << first;
  }
}

TEST(LstmInstruction, KnowsTheFunctionOfTheCellEverywhere) {
  const auto core = MakeCore({.profile = *FindDeviceProfile("")});
  // Nothing comes in, everything stays, everything goes out.
  LstmLayer layer = LayerOfBiases(65536, 1, [](uint32_t gate, uint32_t) {
    return gate == 0 ? -32768 : gate == 2 ? 0 : 32767;
  });
  for (size_t i = 0; i < 65536; ++i) {
    StoreLittleEndian(&layer.cell[2 * i], static_cast<uint16_t>(i));
  }
  for (uint32_t bits = 0; bits <= 6; ++bits) {
    layer.op.cell_integer_bits = bits;
    ASSERT_EQ(RunLayer(*core, layer), Expected(layer)) << bits << " integer bits";
  }
}

// A sequence in two halves is the sequence: the state is all that a step leaves behind.
TEST(LstmInstruction, GoesOnWhereItsStateSays) {
  Rng rng(TestSeed(42));
  const auto core = MakeCore();
  LstmLayer whole = RandomLayer(rng);
  whole.op.batch = 1;
  whole.op.steps = 4;
  whole.hidden.resize(whole.op.units);
  whole.cell.resize(2 * whole.op.units);
  whole.input.resize(size_t{4} * whole.op.inputs);
  rng.Fill(whole.input);
  const Outcome expected = RunLayer(*core, whole);

  LstmLayer half = whole;
  half.op.steps = 2;
  const auto middle = whole.input.begin() + 2 * static_cast<ptrdiff_t>(whole.op.inputs);
  half.input.assign(whole.input.begin(), middle);
  Outcome got = RunLayer(*core, half);
  half.input.assign(middle, whole.input.end());
  half.hidden = got.hidden;
  half.cell = got.cell;
  const Outcome second = RunLayer(*core, half);
  Append(got.output, second.output);
  EXPECT_EQ(got.output, expected.output);
  EXPECT_EQ(second.hidden, expected.hidden);
  EXPECT_EQ(second.cell, expected.cell);
}

TEST(LstmInstruction, FaultsOnABadChannelRecord) {
  Rng rng(TestSeed(43));
  LstmLayer layer = RandomLayer(rng);
  layer.records = RandomRecords(rng, size_t{8} * layer.op.units);
  const uint32_t last = 8 * layer.op.units - 1;
  StoreLittleEndian<int32_t>(&layer.records[last * kChannelRecordBytes + 8], 128);
  const auto core = MakeCore();
  LstmInstruction op = layer.op;
  op.channel_address = 0;
  op.weight_address = op.input_address = 0x4000;
  op.hidden_address = 0x8000;
  op.cell_address = 0x9000;
  op.output_address = 0xA000;
  Send(*core, ProgramRecord({InputInstruction{.bytes = static_cast<uint32_t>(layer.records.size())},
                             FillInstruction{.output_address = 0x4000, .bytes = 0x6000}, op}));
  Send(*core, StartRecord({.instruction_count = 3}));
  Send(*core, Record(RecordTag::kInput, layer.records));
  while (core->Step()) {
  }
  EXPECT_EQ(ReadFault(*core), (Fault{FaultCode::kBadOperand, last}));
}

}  // namespace
}  // namespace atollrt
