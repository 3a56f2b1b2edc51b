// SPDX-License-Identifier: Apache-2.0
#include "driver/emulator/stepped_vector_unit.h"

#include <algorithm>
#include <array>
#include <variant>
#include <vector>

#include "atoll/check.h"
#include "driver/emulator/isa_arithmetic.h"
#include "driver/emulator/stepped_functions.h"

namespace atollrt {

using stepped::Lane;

namespace {

constexpr size_t kByteValues = 256;

template <typename T>
bool IsUnsigned(const T& i) {
  return (i.flags & kFlagInputUnsigned) != 0;
}

// The range of the bytes of an instruction.
template <typename T>
int64_t LeastByte(const T& i) {
  return IsUnsigned(i) ? 0 : -128;
}
template <typename T>
int64_t GreatestByte(const T& i) {
  return LeastByte(i) + 255;
}

// How values of two lanes become one.
int64_t WrappedSum(int64_t a, int64_t b) { return isa::Wrap(a + b); }
int64_t Greater(int64_t a, int64_t b) { return std::max(a, b); }
int64_t Lesser(int64_t a, int64_t b) { return std::min(a, b); }

// One instruction as it runs. What happens outside of Cycle() is the work of the address unit
// before the lanes, or of the output stage behind them.
class Execution {
 public:
  Execution(stepped::Lanes& lanes, const Segments& segments, std::span<uint8_t> memory,
            const StopSignal& stop)
      : lanes_(lanes), segments_(segments), memory_(memory), stop_(stop) {}

  void operator()(const DepthwiseConv2DInstruction& i) {
    const size_t input = At(i.input_address);
    const size_t weights = At(i.weight_address);
    const uint64_t multiplier = i.output_c / i.input_c;
    ForEachWindow(
        i, i.input_c, i.output_c, {i.dilation_h, i.dilation_w}, [](Lane& lane) { lane.value = 0; },
        [&](Lane& lane, uint64_t cell, uint64_t tap, uint64_t channel) {
          const uint8_t byte = memory_[input + cell + channel / multiplier];
          const uint8_t weight = memory_[weights + tap * i.output_c + channel];
          const bool weights_unsigned = (i.flags & kFlagWeightsUnsigned) != 0;
          lane.value = isa::Wrap(lane.value +
                                 (isa::Value(byte, IsUnsigned(i)) - i.input_zero_point) *
                                     (isa::Value(weight, weights_unsigned) - i.weight_zero_point));
        },
        [&](const Lane& lane, uint64_t channel, int64_t) {
          const isa::ChannelRecord record = isa::ReadChannelRecord(
              memory_.subspan(At(i.channel_address) + channel * kChannelRecordBytes));
          return isa::Activate(i, record, lane.value);
        });
  }

  void operator()(const Pool2DInstruction& i) {
    const size_t input = At(i.input_address);
    const bool averages = (i.flags & kFlagAverage) != 0;
    ForEachWindow(
        i, i.channels, i.channels, {1, 1},
        [&](Lane& lane) { lane.value = averages ? 0 : LeastByte(i); },
        [&](Lane& lane, uint64_t cell, uint64_t, uint64_t channel) {
          const int64_t x = isa::Value(memory_[input + cell + channel], IsUnsigned(i));
          lane.value = averages ? lane.value + x : std::max(lane.value, x);
        },
        [&](const Lane& lane, uint64_t, int64_t cells) {
          int64_t y = lane.value;
          if (averages) y = (y > 0 || IsUnsigned(i) ? y + cells / 2 : y - cells / 2) / cells;
          return isa::Clamped(y, i.clamp_min, i.clamp_max);
        });
  }

  void operator()(const AddInstruction& i) {
    const auto scaled = [&](uint8_t byte, int64_t zero_point, int64_t multiplier,
                            int64_t exponent) {
      const int64_t shifted =
          (isa::Value(byte, IsUnsigned(i)) - zero_point) * (int64_t{1} << i.left_shift);
      return isa::Mbqm(shifted, multiplier, exponent);
    };
    ForEachPair(
        i,
        [&](uint8_t x1) {
          return scaled(x1, i.input1_zero_point, i.input1_multiplier, i.input1_exponent);
        },
        [&](int64_t a, uint8_t x2) {
          const int64_t b = scaled(x2, i.input2_zero_point, i.input2_multiplier, i.input2_exponent);
          return isa::Wrap((i.flags & kFlagSubtract) != 0 ? a - b : a + b);
        },
        [&](int64_t, int64_t s) {
          if ((i.flags & kFlagSquare) != 0) s = isa::Wrap(s * s);
          return Requantized(i, s, i.output_multiplier, i.output_exponent);
        });
  }

  void operator()(const MultiplyInstruction& i) {
    ForEachProduct(i, [&](int64_t, int64_t product) {
      return Requantized(i, product, i.output_multiplier, i.output_exponent);
    });
  }

  void operator()(const PreluInstruction& i) {
    ForEachProduct(i, [&](int64_t a, int64_t product) {
      return a >= 0 ? Requantized(i, a, i.positive_multiplier, i.positive_exponent)
                    : Requantized(i, product, i.negative_multiplier, i.negative_exponent);
    });
  }

  void operator()(const MaximumInstruction& i) { ForEachChoice(i, Greater); }
  void operator()(const MinimumInstruction& i) { ForEachChoice(i, Lesser); }

  void operator()(const ReduceSumInstruction& i) {
    Reduce(
        i, 0,
        [&](int64_t sum, uint8_t byte) {
          return WrappedSum(sum, isa::Value(byte, IsUnsigned(i)) - i.input_zero_point);
        },
        WrappedSum, [&](int64_t sum) { return Requantized(i, sum, i.multiplier, i.exponent); });
  }

  void operator()(const ReduceMaxInstruction& i) { ReduceByChoice(i, LeastByte(i), Greater); }
  void operator()(const ReduceMinInstruction& i) { ReduceByChoice(i, GreatestByte(i), Lesser); }

  void operator()(const TableInstruction& i) {
    const size_t input = At(i.input_address), output = At(i.output_address);
    const size_t table = At(i.table_address);
    lanes_.ForTiles(i.count, [&](uint64_t first, uint64_t count) {
      lanes_.Cycle(count, [&](Lane& lane, uint64_t k) { lane.value = memory_[input + first + k]; });
      Output(output + first, count,
             [&](const Lane& lane) { return memory_[table + static_cast<size_t>(lane.value)]; });
    });
  }

  void operator()(const SoftmaxInstruction& i) {
    const std::array<int64_t, kByteValues> exponentials = Exponentials(i);
    const int64_t least = LeastByte(i);
    for (uint64_t row = 0; row < i.rows; ++row) {
      const size_t input = At(i.input_address) + row * i.depth;
      const size_t output = At(i.output_address) + row * i.depth;
      const auto element = [&](uint64_t k) {
        return isa::Value(memory_[input + k], IsUnsigned(i));
      };

      lanes_.Clear([&](Lane& lane) { lane.value = least; });
      Pass(i.depth, [&](Lane& lane, uint64_t k) { lane.value = Greater(lane.value, element(k)); });
      lanes_.Fold(lanes_.count(), Greater);
      const int64_t greatest = lanes_[0].value;

      const auto counts = [&](uint64_t k) { return element(k) - greatest >= i.min_difference; };
      const auto exponential = [&](uint64_t k) { return exponentials[greatest - element(k)]; };
      lanes_.Clear([](Lane& lane) { lane.value = 0; });
      Pass(i.depth, [&](Lane& lane, uint64_t k) {
        if (counts(k)) lane.value = WrappedSum(lane.value, isa::Rdpot(exponential(k), 12));
      });
      lanes_.Fold(lanes_.count(), WrappedSum);

      stepped::Reciprocal reciprocal(static_cast<uint32_t>(lanes_[0].value));
      lanes_.ComputeInLaneZero(reciprocal);
      const int64_t h = reciprocal.leading_zeros();
      lanes_.ForTiles(i.depth, [&](uint64_t first, uint64_t count) {
        lanes_.Cycle(count, [&](Lane& lane, uint64_t k) {
          lane.value = least;
          if (!counts(first + k) || h < 4 || h == 32) return;
          const int64_t product = isa::Srdhm(exponential(first + k), reciprocal.result());
          lane.value = std::min(isa::Rdpot(product, 35 - h) + least, least + 255);
        });
        Output(output + first, count,
               [](const Lane& lane) { return static_cast<uint8_t>(lane.value); });
      });
    }
  }

  void operator()(const L2NormalizationInstruction& i) {
    for (uint64_t row = 0; row < i.rows; ++row) {
      const size_t input = At(i.input_address) + row * i.depth;
      const size_t output = At(i.output_address) + row * i.depth;
      const auto difference = [&](uint64_t k) {
        return isa::Value(memory_[input + k], IsUnsigned(i)) - i.input_zero_point;
      };
      lanes_.Clear([](Lane& lane) { lane.value = 0; });
      Pass(i.depth, [&](Lane& lane, uint64_t k) {
        lane.value = WrappedSum(lane.value, difference(k) * difference(k));
      });
      lanes_.Fold(lanes_.count(), WrappedSum);

      stepped::InverseRoot root(lanes_[0].value);
      lanes_.ComputeInLaneZero(root);
      const int64_t q = root.multiplier(), e = root.exponent();
      lanes_.ForTiles(i.depth, [&](uint64_t first, uint64_t count) {
        lanes_.Cycle(count, [&](Lane& lane, uint64_t k) {
          const int64_t d = difference(first + k);
          lane.value =
              IsUnsigned(i) ? isa::Rdpot(isa::Srdhm(128 * d, q), -e) + 128 : isa::Mbqm(d, q, e + 7);
        });
        Output(output + first, count, [&](const Lane& lane) {
          return isa::Clamped(lane.value, LeastByte(i), GreatestByte(i));
        });
      });
    }
  }

  void operator()(const ResizeBilinearInstruction& i) {
    const bool is_unsigned = IsUnsigned(i);
    const auto axis = is_unsigned ? stepped::RealAxis : stepped::IntegerAxis;
    const size_t input = At(i.input_address);
    ForEachResized(i, [&](uint64_t batch, int64_t y, int64_t x, size_t output) {
      const stepped::BilinearAxis rows = axis(i.input_h, i.output_h, y, i.mode);
      const stepped::BilinearAxis columns = axis(i.input_w, i.output_w, x, i.mode);
      lanes_.ForTiles(i.channels, [&](uint64_t first, uint64_t count) {
        lanes_.Clear([](Lane& lane) { lane.value = 0, lane.real = 0; });
        // One corner in each cycle: (lo, lo), (hi, lo), (lo, hi), (hi, hi) of rows and columns.
        for (size_t corner = 0; corner < 4; ++corner) {
          const size_t v = corner % 2, h = corner / 2;
          const size_t cell = input + CellOf(i, batch, rows.cells[v], columns.cells[h]);
          lanes_.Cycle(count, [&](Lane& lane, uint64_t k) {
            const uint8_t byte = memory_[cell + first + k];
            if (is_unsigned) {
              const float term =
                  static_cast<float>(byte) * rows.real_weights[v] * columns.real_weights[h];
              lane.real = corner == 0 ? term : lane.real + term;
            } else {
              lane.value += isa::Value(byte, false) * (rows.weights[v] * columns.weights[h]);
            }
          });
        }
        Output(output + first, count, [&](const Lane& lane) {
          if (is_unsigned) return static_cast<uint8_t>(static_cast<int64_t>(lane.real + 0.5f));
          const int64_t half = lane.value > 0 ? int64_t{1} << 19 : -(int64_t{1} << 19);
          return static_cast<uint8_t>((lane.value + half) / (int64_t{1} << 20));
        });
      });
    });
  }

  void operator()(const ResizeNearestNeighborInstruction& i) {
    const size_t input = At(i.input_address);
    ForEachResized(i, [&](uint64_t batch, int64_t y, int64_t x, size_t output) {
      const int64_t row = stepped::NearestCell(i.input_h, i.output_h, y, i.mode);
      const int64_t column = stepped::NearestCell(i.input_w, i.output_w, x, i.mode);
      const size_t cell = input + CellOf(i, batch, row, column);
      lanes_.ForTiles(i.channels, [&](uint64_t first, uint64_t count) {
        lanes_.Cycle(count,
                     [&](Lane& lane, uint64_t k) { lane.value = memory_[cell + first + k]; });
        Output(output + first, count,
               [](const Lane& lane) { return static_cast<uint8_t>(lane.value); });
      });
    });
  }

  // What other units execute.
  template <typename T>
  void operator()(const T&) {
    ATOLL_CHECK(false);
  }

 private:
  // One operation on each of `elements` neighbours: operation(lane, element).
  template <typename Operation>
  void Pass(uint64_t elements, const Operation& operation) {
    lanes_.ForTiles(elements, [&](uint64_t first, uint64_t count) {
      lanes_.Cycle(count, [&](Lane& lane, uint64_t k) { operation(lane, first + k); });
    });
  }

  // The output stage: the bytes of the first `count` lanes.
  template <typename ByteOf>
  void Output(size_t address, uint64_t count, const ByteOf& byte_of) {
    for (uint64_t k = 0; k < count; ++k) memory_[address + k] = byte_of(lanes_[k]);
  }

  template <typename T>
  static uint8_t Requantized(const T& i, int64_t x, int64_t multiplier, int64_t exponent) {
    const int64_t y = isa::Mbqm(x, multiplier, exponent) + i.output_zero_point;
    return isa::Clamped(isa::Wrap(y), i.clamp_min, i.clamp_max);
  }

  // ---- Addresses ----

  size_t At(uint32_t address) const { return segments_.Resolve(address); }

  struct Dilation {
    uint32_t h, w;
  };

  // Windows over images, one output channel in each lane, one tap in each cycle; taps outside of
  // the image are cycles without an operation.
  //   clear(lane); add(lane, cell, tap, channel), `cell` being where its first channel lies from
  //   the tensor's first byte; output(lane, channel, cells inside the image)
  template <typename T, typename ClearLane, typename Add, typename OutputByte>
  void ForEachWindow(const T& i, uint64_t input_channels, uint64_t channels, Dilation dilation,
                     const ClearLane& clear, const Add& add, const OutputByte& output_byte) {
    size_t output = At(i.output_address);
    const auto window = [&](uint64_t batch, uint64_t y, uint64_t x) {
      lanes_.ForTiles(channels, [&](uint64_t first, uint64_t count) {
        lanes_.Clear(clear);
        int64_t cells = 0;
        for (uint64_t tap = 0; tap < uint64_t{i.kernel_h} * i.kernel_w; ++tap) {
          // What is negative wraps, to beyond the image as well.
          const uint64_t iy = y * i.stride_h + tap / i.kernel_w * dilation.h - i.pad_top;
          const uint64_t ix = x * i.stride_w + tap % i.kernel_w * dilation.w - i.pad_left;
          const bool inside = iy < i.input_h && ix < i.input_w;
          const uint64_t cell = ((batch * i.input_h + iy) * i.input_w + ix) * input_channels;
          if (inside) ++cells;
          lanes_.Cycle(count, [&](Lane& lane, uint64_t k) {
            if (inside) add(lane, cell, tap, first + k);
          });
        }
        for (uint64_t k = 0; k < count; ++k) {
          memory_[output++] = output_byte(lanes_[k], first + k, cells);
        }
      });
    };
    for (uint64_t n = 0; n < i.batch; ++n) {
      for (uint64_t y = 0; y < i.output_h; ++y) {
        for (uint64_t x = 0; x < i.output_w && !stop_(); ++x) window(n, y, x);
      }
    }
  }

  // Two tensors. A lane reads one byte in a cycle, so its pair takes two.
  //   a = read1(x1), b = read2(a, x2), y = output(a, b)
  template <PairInstruction T, typename Read1, typename Read2, typename OutputByte>
  void ForEachPair(const T& i, const Read1& read1, const Read2& read2,
                   const OutputByte& output_byte) {
    size_t output = At(i.output_address);
    const auto line = [&](uint64_t input1, uint64_t input2) {
      lanes_.ForTiles(i.count3, [&](uint64_t first, uint64_t count) {
        lanes_.Cycle(count, [&](Lane& lane, uint64_t k) {
          lane.value = read1(memory_[input1 + (first + k) * i.input1_stride3]);
        });
        lanes_.Cycle(count, [&](Lane& lane, uint64_t k) {
          lane.second = read2(lane.value, memory_[input2 + (first + k) * i.input2_stride3]);
        });
        Output(output, count,
               [&](const Lane& lane) { return output_byte(lane.value, lane.second); });
        output += count;
      });
    };
    for (uint64_t i0 = 0; i0 < i.count0; ++i0) {
      for (uint64_t i1 = 0; i1 < i.count1; ++i1) {
        for (uint64_t i2 = 0; i2 < i.count2; ++i2) {
          line(At(i.input1_address) + i0 * i.input1_stride0 + i1 * i.input1_stride1 +
                   i2 * i.input1_stride2,
               At(i.input2_address) + i0 * i.input2_stride0 + i1 * i.input2_stride1 +
                   i2 * i.input2_stride2);
        }
      }
    }
  }

  // The products of differences from the zero points: y = output(difference 1, product).
  template <typename T, typename OutputByte>
  void ForEachProduct(const T& i, const OutputByte& output_byte) {
    ForEachPair(
        i, [&](uint8_t x1) { return isa::Value(x1, IsUnsigned(i)) - i.input1_zero_point; },
        [&](int64_t a, uint8_t x2) {
          return a * (isa::Value(x2, IsUnsigned(i)) - i.input2_zero_point);
        },
        output_byte);
  }
  // y = choose(x1, x2).
  template <typename T, typename Choose>
  void ForEachChoice(const T& i, const Choose& choose) {
    ForEachPair(
        i, [&](uint8_t x1) { return isa::Value(x1, IsUnsigned(i)); },
        [&](int64_t a, uint8_t x2) { return choose(a, isa::Value(x2, IsUnsigned(i))); },
        [](int64_t, int64_t y) { return static_cast<uint8_t>(y); });
  }

  template <typename T, typename Choose>
  void ReduceByChoice(const T& i, int64_t neutral, const Choose& choose) {
    Reduce(
        i, neutral,
        [&](int64_t m, uint8_t byte) { return choose(m, isa::Value(byte, IsUnsigned(i))); }, choose,
        [](int64_t m) { return static_cast<uint8_t>(m); });
  }

  // Reductions begin with `neutral`. If the last axis is kept, each lane has an output of its own;
  // otherwise all lanes work for one, and are folded.
  //   add(value, byte), combine(value, value), output(value)
  template <typename T, typename Add, typename Combine, typename OutputByte>
  void Reduce(const T& i, int64_t neutral, const Add& add, const Combine& combine,
              const OutputByte& output_byte) {
    const auto clear = [&](Lane& lane) { lane.value = neutral; };
    const auto byte = [&](const Lane& lane) { return output_byte(lane.value); };
    // The first of the elements whose last two indices count up; line(address) for each r0, r1.
    const auto lines = [&](uint64_t k0, uint64_t k1, const auto& line) {
      for (uint64_t r0 = 0; r0 < i.reduced0; ++r0) {
        for (uint64_t r1 = 0; r1 < i.reduced1; ++r1) {
          const uint64_t above = ((k0 * i.reduced0 + r0) * i.kept1 + k1) * i.reduced1 + r1;
          line(At(i.input_address) + above * i.kept2 * i.reduced2);
        }
      }
    };
    size_t output = At(i.output_address);
    for (uint64_t k0 = 0; k0 < i.kept0; ++k0) {
      for (uint64_t k1 = 0; k1 < i.kept1; ++k1) {
        if (i.reduced2 == 1) {
          lanes_.ForTiles(i.kept2, [&](uint64_t first, uint64_t count) {
            lanes_.Clear(clear);
            lines(k0, k1, [&](size_t line) {
              lanes_.Cycle(count, [&](Lane& lane, uint64_t k) {
                lane.value = add(lane.value, memory_[line + first + k]);
              });
            });
            Output(output, count, byte);
            output += count;
          });
          continue;
        }
        for (uint64_t k2 = 0; k2 < i.kept2; ++k2) {
          lanes_.Clear(clear);
          lines(k0, k1, [&](size_t line) {
            lanes_.ForTiles(i.reduced2, [&](uint64_t first, uint64_t count) {
              lanes_.Cycle(count, [&](Lane& lane, uint64_t k) {
                lane.value = add(lane.value, memory_[line + k2 * i.reduced2 + first + k]);
              });
            });
          });
          lanes_.Fold(std::min<uint64_t>(i.reduced2, lanes_.count()), combine);
          Output(output++, 1, byte);
        }
      }
    }
  }

  // The exponential of each difference from 0 to -255, by its magnitude; one in each lane.
  std::array<int64_t, kByteValues> Exponentials(const SoftmaxInstruction& i) {
    std::array<int64_t, kByteValues> table;
    std::vector<stepped::Exponential> functions(lanes_.count());
    lanes_.ForTiles(kByteValues, [&](uint64_t first, uint64_t count) {
      for (uint64_t k = 0; k < count; ++k) functions[k].Start(-static_cast<int64_t>(first + k));
      bool is_last = false;
      while (!is_last) {
        lanes_.Cycle(count, [&](Lane&, uint64_t k) {
          is_last = functions[k].Step(i.multiplier, i.exponent);
        });
      }
      for (uint64_t k = 0; k < count; ++k) table[first + k] = functions[k].result();
    });
    return table;
  }

  // cell(batch, y, x, output): each output cell of a resized image, with y in the whole image and
  // the address of its first channel.
  template <typename T, typename Cells>
  void ForEachResized(const T& i, const Cells& cells) {
    size_t output = At(i.output_address);
    for (uint64_t n = 0; n < i.batch; ++n) {
      for (int64_t y = 0; y < int64_t{i.output_rows}; ++y) {
        for (int64_t x = 0; x < int64_t{i.output_w}; ++x) {
          cells(n, int64_t{i.output_first} + y, x, output);
          output += i.channels;
        }
      }
    }
  }

  // Of a cell of the whole input image, from the first byte of those rows that are there.
  template <typename T>
  static size_t CellOf(const T& i, uint64_t batch, int64_t row, int64_t column) {
    const uint64_t line = batch * i.input_rows + static_cast<uint64_t>(row - i.input_first);
    return (line * i.input_w + static_cast<uint64_t>(column)) * i.channels;
  }

  stepped::Lanes& lanes_;
  const Segments& segments_;
  std::span<uint8_t> memory_;
  const StopSignal& stop_;
};

}  // namespace

SteppedVectorUnit::SteppedVectorUnit(uint32_t lanes) : lanes_(lanes) { ATOLL_CHECK(lanes >= 1); }

uint64_t SteppedVectorUnit::Run(const Instruction& instruction, const Segments& segments,
                                std::span<uint8_t> memory) {
  lanes_.ResetClock();
  std::visit(Execution(lanes_, segments, memory, stop_), instruction);
  return lanes_.cycles();
}

}  // namespace atollrt
