// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "delegate/compilation.h"
#include "delegate/partitioner.h"
#include "runtime/base/range_max.h"

namespace atollrt {
namespace {

// How many steps at most are computed in bands together, and in how many bands.
constexpr size_t kBandedStepsMax = 32;
constexpr int32_t kBandsMax = 64;

int64_t Rounded(int64_t bytes) { return AlignUp(bytes, kOnChipAlignment); }

}  // namespace

// ---- Layout -------------------------------------------------------------------------------------

// Of the layouts that fit the one whose program takes the device the least time: whole tensors and
// resident parameters, bands, streaming, or both of these; streaming with or without prefetch.
bool Compilation::ChooseLayout() {
  if (PlanFits()) return true;
  const Layout plain = layout_;
  std::optional<Layout> best;
  uint64_t best_cycles = 0;
  const bool is_searched = set_.size() <= kSearchedSteps;
  const bool bands_fit = is_searched && AddBands();
  if (bands_fit) Consider(&best, &best_cycles);
  const auto stream = [&] {
    const Layout layout = layout_;
    for (const bool prefetch : {true, false}) {
      layout_ = layout;
      layout_.prefetch = prefetch;
      if (AddStreaming()) Consider(&best, &best_cycles);
    }
  };
  layout_ = plain;
  stream();
  if (is_searched && !bands_fit) {
    // Bands around what is left on chip when everything is streamed, and then stream less.
    layout_ = plain;
    for (size_t step = 0; step < set_.size(); ++step) {
      layout_.streamed[step] = ParameterBytes(step) > 0;
    }
    if (AddBands()) {
      layout_.streamed = plain.streamed;
      stream();
    }
  }
  if (!best) {
    layout_ = plain;
    PlanFits();
    return false;
  }
  layout_ = *std::move(best);
  return PlanFits();
}

// Takes the present layout, which fits, if its program is faster than the best one so far.
void Compilation::Consider(std::optional<Layout>* best, uint64_t* best_cycles) {
  const uint64_t cycles = Assemble().estimated_cycles;
  if (*best && *best_cycles <= cycles) return;
  *best = layout_;
  *best_cycles = cycles;
}

// Streams the largest parameters first, which leaves the fewest bytes to stream per byte of memory
// gained, then takes back what turns out to have been too much. What does not fit by the sum of its
// blocks need not be planned.
bool Compilation::AddStreaming() {
  std::vector<size_t> by_size(set_.size());
  for (size_t i = 0; i < by_size.size(); ++i) by_size[i] = i;
  std::sort(by_size.begin(), by_size.end(), [&](size_t a, size_t b) {
    const int64_t bytes_a = ParameterBytes(a), bytes_b = ParameterBytes(b);
    return bytes_a != bytes_b ? bytes_a > bytes_b : a < b;
  });
  // Steps begin with -1.
  RangeMax<> alive(set_.size() + 2);
  const auto count = [&](const MemoryBlock& block, int64_t sign) {
    if (block.size == 0) return;
    alive.Change(block.first_use + 1, block.last_use + 1, sign * Rounded(block.size));
  };
  for (const MemoryBlock& block : MakeBlocks()) count(block, 1);
  int64_t free_bytes = MemoryBytes() - ResidentBytes();
  const auto set_streamed = [&](size_t step, bool streamed) {
    const int64_t sign = streamed ? 1 : -1;
    layout_.streamed[step] = streamed;
    count(StreamedBlock(step), sign);
    free_bytes += sign * Rounded(ParameterBytes(step));
  };
  // Where the blocks would fit and their plan does not, ever more is streamed before the next one.
  int plans = 0;
  size_t next_plan = 0;
  const auto fits = [&](size_t streamed) {
    if (alive.Max() > free_bytes || streamed < next_plan) return false;
    if (PlanFits()) return true;
    constexpr int kPlansMax = 16;
    if (++plans >= kPlansMax) next_plan = streamed + streamed / 8;
    return false;
  };
  size_t streamed = 0;
  bool all_fits = fits(streamed);
  while (!all_fits && streamed < by_size.size() && ParameterBytes(by_size[streamed]) > 0) {
    set_streamed(by_size[streamed++], true);
    all_fits = fits(streamed);
  }
  if (!all_fits) {
    if (set_.size() > kSearchedSteps || !AddParts()) return false;
    for (size_t i = 0; i + 1 < streamed; ++i) {
      const size_t step = by_size[i];
      const int32_t parts = std::exchange(layout_.parts[step], 1);
      layout_.streamed[step] = false;
      if (PlanFits()) continue;
      layout_.streamed[step] = true;
      layout_.parts[step] = parts;
    }
    return PlanFits();
  }
  plans = 0;
  next_plan = 0;
  for (size_t i = 0; i + 1 < streamed && next_plan <= streamed; ++i) {
    set_streamed(by_size[i], false);
    if (!fits(streamed)) set_streamed(by_size[i], true);
  }
  return PlanFits();
}

// Divides the largest streamed parameters at the peak until everything fits.
bool Compilation::AddParts() {
  while (!PlanFits()) {
    const std::vector<MemoryBlock> blocks = MakeBlocks();
    const int32_t peak = static_cast<int32_t>(StepAtPeak(blocks));
    std::optional<size_t> largest;
    for (size_t step = 0; step < set_.size(); ++step) {
      const MemoryBlock& block = blocks[ParameterBlock(step)];
      const bool alive = block.first_use <= peak && peak <= block.last_use && block.size > 0;
      if (!alive || BandsOf(step) != nullptr ||
          layout_.parts[step] * 2 > lowered_[step]->divisible_channels()) {
        continue;
      }
      if (!largest || block.size > blocks[ParameterBlock(*largest)].size) largest = step;
    }
    if (!largest) return false;
    layout_.parts[*largest] *= 2;
  }
  return true;
}

// Computes steps around the peak in bands until everything fits.
bool Compilation::AddBands() {
  // What fits by the sum of its blocks may not fit as a plan: gaps between blocks remain.
  int64_t budget = MemoryBytes() - ResidentBytes();
  for (;;) {
    if (PlanFits()) return true;
    const std::vector<MemoryBlock> blocks = MakeBlocks();
    const size_t peak = StepAtPeak(blocks);
    const bool has_bands = BandsOf(peak) != nullptr;
    if (has_bands || MemoryLowerBound(blocks, kOnChipAlignment) <= budget) {
      budget -= budget / 16;
      if (budget < kPage) return false;
      std::erase_if(layout_.bands, [&](const RowBands& bands) { return bands.Contains(peak); });
    }
    std::optional<RowBands> bands = FindBands(peak, budget, has_bands ? MakeBlocks() : blocks);
    if (!bands) return false;
    const auto place =
        std::find_if(layout_.bands.begin(), layout_.bands.end(),
                     [&](const RowBands& other) { return other.first() > bands->first(); });
    layout_.bands.insert(place, *std::move(bands));
  }
}

// The cheapest bands around a step with which no more than `budget` bytes are alive at once during
// the steps concerned, if `blocks` is all there is without them. A step by itself, whose rows can
// only come from the host or go to it, is the last choice: its neighbours could no longer join it.
std::optional<RowBands> Compilation::FindBands(size_t peak, int64_t budget,
                                               std::vector<MemoryBlock> blocks) const {
  const auto may_join = [&](size_t step) {
    return lowered_[step]->divides_into_rows() && BandsOf(step) == nullptr &&
           layout_.parts[step] == 1;
  };
  if (!may_join(peak)) return std::nullopt;
  const ArraySize array{device_.array_rows, device_.array_columns};
  const std::vector<int64_t> alive = BytesAlive(blocks);
  std::optional<RowBands> best;
  uint64_t best_cycles = 0;
  const auto consider = [&](size_t first, size_t last) {
    if (WholeBytes(first, last, blocks) > budget) return;  // however many bands there are
    for (int32_t count = 2; count <= std::min(kBandsMax, steps_[last].output_rows); count *= 2) {
      RowBands bands(steps_, arriving_, first, last, count);
      if (!FitsBands(bands, budget, alive, &blocks)) continue;
      const uint64_t cycles = bands.Cycles(steps_, array) -
                              RowBands(steps_, arriving_, first, last, 1).Cycles(steps_, array);
      if (!best || cycles < best_cycles) {
        best = std::move(bands);
        best_cycles = cycles;
      }
      break;  // more bands only cost more
    }
  };
  for (size_t first = peak;; --first) {
    for (size_t last = std::max(peak, first + 1);
         last < set_.size() && last - first < kBandedStepsMax && may_join(last); ++last) {
      consider(first, last);
    }
    if (first == 0 || peak - first + 1 >= kBandedStepsMax || !may_join(first - 1)) break;
  }
  if (!best) consider(peak, peak);
  if (!best) return best;
  // Half as many are too few; fewer than these may do.
  for (int32_t too_few = best->bands() / 2; best->bands() - too_few > 1;) {
    const int32_t count = (best->bands() + too_few) / 2;
    RowBands bands(steps_, arriving_, best->first(), best->last(), count);
    if (FitsBands(bands, budget, alive, &blocks)) {
      best = std::move(bands);
    } else {
      too_few = count;
    }
  }
  return best;
}

// What bands of these steps leave whole, which is there while they run: what others read of their
// outputs, and inputs from outside unless these may arrive in rows.
int64_t Compilation::WholeBytes(size_t first, size_t last,
                                const std::vector<MemoryBlock>& blocks) const {
  std::vector<size_t> whole;
  const bool arrives = arriving_.tensor >= 0 &&
                       static_cast<int32_t>(first) <= arriving_.first_reader &&
                       arriving_.last_reader <= static_cast<int32_t>(last);
  for (size_t step = first; step <= last; ++step) {
    if (steps_[step].last_reader > static_cast<int32_t>(last)) {
      for (const int32_t tensor : NodeAt(step).outputs) whole.push_back(TensorBlock(tensor));
    }
    for (const int32_t tensor : NodeAt(step).inputs) {
      if (tensor < 0 || (arrives && tensor == arriving_.tensor)) continue;
      const int32_t writer = Writer(tensor);
      const bool is_inside =
          static_cast<int32_t>(first) <= writer && writer <= static_cast<int32_t>(last);
      if (!is_inside) whole.push_back(TensorBlock(tensor));
    }
  }
  SortAndUnify(&whole);
  int64_t bytes = 0;
  for (const size_t block : whole) bytes += blocks[block].size;
  return bytes;
}

// Whether no more than `budget` bytes are alive at once during the steps of the bands, if `blocks`
// is all there is without them, with `alive` bytes during each step. The blocks are changed and
// restored.
bool Compilation::FitsBands(const RowBands& bands, int64_t budget,
                            const std::vector<int64_t>& alive,
                            std::vector<MemoryBlock>* blocks) const {
  const size_t first = bands.first(), last = bands.last();
  // Of what the bands change: the difference at each step, as one to the step before.
  std::vector<int64_t> change(last - first + 2);
  const auto count = [&](const MemoryBlock& block, int64_t sign) {
    const int32_t begin = std::max(block.first_use, static_cast<int32_t>(first));
    const int32_t end = std::min(block.last_use, static_cast<int32_t>(last)) + 1;
    if (begin >= end) return;
    change[begin - first] += sign * block.size;
    change[end - first] -= sign * block.size;
  };
  const std::vector<size_t> changing = BlocksThatMayChange(bands);
  std::vector<MemoryBlock> before;
  for (const size_t index : changing) {
    before.push_back((*blocks)[index]);
    count(before.back(), -1);
  }
  Confine(bands, blocks);
  for (size_t i = 0; i < changing.size(); ++i) {
    count((*blocks)[changing[i]], 1);
    (*blocks)[changing[i]] = before[i];
  }
  int64_t difference = 0;
  for (size_t step = first; step <= last; ++step) {
    difference += change[step - first];
    if (alive[step] + difference > budget) return false;
  }
  return true;
}

// Blocks that Confine changes, each once.
std::vector<size_t> Compilation::BlocksThatMayChange(const RowBands& bands) const {
  std::vector<size_t> blocks;
  for (size_t step = bands.first(); step <= bands.last(); ++step) {
    for (const int32_t tensor : NodeAt(step).outputs) blocks.push_back(TensorBlock(tensor));
    for (const int32_t tensor : NodeAt(step).inputs) {
      if (tensor >= 0) blocks.push_back(TensorBlock(tensor));
    }
    blocks.insert(blocks.end(), {ScratchBlock(step), KeptBlock(step), ParameterBlock(step)});
  }
  if (bands.arriving() >= 0) blocks.push_back(Number(bands.arriving()));
  SortAndUnify(&blocks);
  return blocks;
}

// ---- Report -------------------------------------------------------------------------------------

std::string Compilation::LayoutNote() const {
  std::string note;
  const auto add = [&](const std::string& sentence) {
    if (!note.empty()) note += "; ";
    note += sentence;
  };
  for (const RowBands& bands : layout_.bands) {
    int64_t whole = 0;
    for (size_t step = bands.first(); step <= bands.last(); ++step) {
      if (!bands.IsInternal(step)) continue;
      for (const int32_t tensor : NodeAt(step).outputs) whole += graph_.tensors[tensor].byte_size();
    }
    if (bands.first() == bands.last()) {
      add(Format(
          "node %d is computed in %d bands of rows, because its input and output do not fit on "
          "chip",
          set_[bands.first()], bands.bands()));
    } else {
      add(Format(
          "nodes %d to %d are computed in %d bands of rows, because the %lld bytes that pass "
          "between them do not fit on chip",
          set_[bands.first()], set_[bands.last()], bands.bands(), static_cast<long long>(whole)));
    }
    const bool sends = std::any_of(outputs_.begin(), outputs_.end(), [&](int32_t tensor) {
      const int32_t writer = Writer(tensor);
      return writer >= 0 && bands.Sends(writer);
    });
    if (bands.arriving() >= 0 || sends) {
      note += Format(" (%s%s%s while others are computed)",
                     bands.arriving() >= 0 ? "rows of the input arrive" : "",
                     bands.arriving() >= 0 && sends ? " and " : "",
                     sends ? "rows of the output leave" : "");
    }
  }
  for (size_t step = 0; step < set_.size(); ++step) {
    if (layout_.parts[step] == 1) continue;
    add(
        Format("node %d is computed in %d parts of its output channels, because its %lld bytes of "
               "parameters do not fit on chip at once",
               set_[step], layout_.parts[step], static_cast<long long>(ParameterBytes(step))));
  }
  const int64_t streamed = std::count(layout_.streamed.begin(), layout_.streamed.end(), true);
  if (streamed > 0) {
    add(Format(
        "parameters of %lld of %zu nodes (%zu bytes) do not fit into %llu bytes on chip "
        "beside %lld bytes of activations and are streamed for every inference",
        static_cast<long long>(streamed), set_.size(), executable_.streamed_parameters.size(),
        static_cast<unsigned long long>(device_.memory_bytes),
        static_cast<long long>(plan_.total)));
  }
  return note;
}

// What is alive at the step that needs the most memory, and what would make it fit.
std::string Compilation::DescribePeak(size_t peak, const std::vector<MemoryBlock>& blocks) const {
  const int32_t at = static_cast<int32_t>(peak);
  std::vector<MemoryNeed> needs;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].size == 0 || blocks[i].first_use > at || blocks[i].last_use < at) continue;
    if (i >= tensors_.size()) {
      if (i == ScratchBlock(peak)) needs.push_back({blocks[i].size, "room to work in"});
      continue;
    }
    // Names of tensors are long; most are those of the node.
    const std::string shape = ShapeString(graph_.tensors[tensors_[i]].shape);
    const auto is_one_of = [&](const std::vector<int32_t>& tensors) {
      return std::any_of(tensors.begin(), tensors.end(),
                         [&](int32_t tensor) { return tensor >= 0 && TensorBlock(tensor) == i; });
    };
    if (is_one_of(NodeAt(peak).outputs)) {
      needs.push_back({blocks[i].size, "its output " + shape});
    } else if (is_one_of(NodeAt(peak).inputs)) {
      needs.push_back({blocks[i].size, "its input " + shape});
    } else {
      needs.push_back({blocks[i].size, Format("tensor %d %s", tensors_[i], shape.c_str())});
    }
  }
  // At the least, parameters are there one after the other.
  if (ParameterBytes(peak) > 0) needs.push_back({ParameterBytes(peak), "its parameters"});
  return Format("%s and its neighbours need on-chip memory for %s; the device has %llu. %s",
                Describe(graph_, NodeAt(peak)).c_str(), DescribeNeeds(std::move(needs)).c_str(),
                static_cast<unsigned long long>(device_.memory_bytes), kMemoryAdvice);
}

// ---- Memory -------------------------------------------------------------------------------------

// Lifetimes: inputs arrive before step 0, outputs leave after the last step, streamed parameters
// and scratch live during their step.
std::vector<MemoryBlock> Compilation::MakeBlocks() const {
  const int32_t last = static_cast<int32_t>(set_.size());
  std::vector<MemoryBlock> blocks(tensors_.size() + 3 * set_.size());
  // An empty life, so that no step counts what has not been touched.
  for (MemoryBlock& block : blocks) block = {.size = 0, .first_use = 0, .last_use = -2};
  const auto touch = [&](int32_t tensor, int32_t step) {
    if (tensor < 0 || graph_.tensors[tensor].is_constant()) return;
    const size_t root = TensorBlock(tensor);
    MemoryBlock& block = blocks[root];
    if (block.size == 0) {
      block.size = graph_.tensors[tensors_[root]].byte_size();
      block.first_use = step;
    }
    block.last_use = std::max(block.last_use, step);
  };
  for (const int32_t tensor : inputs_) touch(tensor, -1);
  for (size_t step = 0; step < set_.size(); ++step) {
    const int32_t at = static_cast<int32_t>(step);
    for (const int32_t tensor : NodeAt(step).outputs) touch(tensor, at);
    for (const int32_t tensor : NodeAt(step).inputs) touch(tensor, at);
    int64_t scratch = lowered_[step]->scratch_bytes(steps_[step].output_rows);
    if (layout_.parts[step] > 1) {
      const ChannelRange part = Part(step, 0);
      blocks[ParameterBlock(step)] = {2 * PartBytes(step), at, at};
      scratch = lowered_[step]->PartScratchBytes(part.begin, part.end);
    } else if (layout_.streamed[step]) {
      blocks[ParameterBlock(step)] = {ParameterBytes(step), at, at};
    }
    blocks[ScratchBlock(step)] = {scratch, at, at};
  }
  for (const int32_t tensor : outputs_) touch(tensor, last);
  for (const RowBands& bands : layout_.bands) Confine(bands, &blocks);
  if (layout_.prefetch) {
    for (size_t step = 0; step < set_.size(); ++step) {
      if (layout_.streamed[step]) {
        blocks[ParameterBlock(step)].first_use = StreamedBlock(step).first_use;
      }
    }
  }
  return blocks;
}

// Of a step that is not in parts, if its parameters are streamed: they are there while its group
// runs, or the one before, too.
MemoryBlock Compilation::StreamedBlock(size_t step) const {
  const auto group_of = [&](size_t member) {
    const RowBands* bands = BandsOf(member);
    return bands != nullptr ? std::pair(bands->first(), bands->last()) : std::pair(member, member);
  };
  const auto [first, last] = group_of(step);
  MemoryBlock block{ParameterBytes(step), static_cast<int32_t>(first), static_cast<int32_t>(last)};
  if (layout_.prefetch) {
    block.first_use = first == 0 ? -1 : static_cast<int32_t>(group_of(first - 1).first);
  }
  return block;
}

// Shrinks what stays inside to one band, and an input that arrives in rows to two; everything else
// that the steps touch is there from the first of them to the last, because they all run in turn
// for every band.
void Compilation::Confine(const RowBands& bands, std::vector<MemoryBlock>* blocks) const {
  const int32_t first = static_cast<int32_t>(bands.first());
  const int32_t last = static_cast<int32_t>(bands.last());
  const auto extend = [&](MemoryBlock& block) {
    if (block.size == 0) return;
    block.first_use = std::min(block.first_use, first);
    block.last_use = std::max(block.last_use, last);
  };
  for (size_t step = bands.first(); step <= bands.last(); ++step) {
    const Node& node = NodeAt(step);
    const int32_t rows = bands.BandRows(step);
    int64_t kept_bytes = 0;
    for (const int32_t tensor : node.outputs) {
      MemoryBlock& output = (*blocks)[TensorBlock(tensor)];
      kept_bytes += bands.MostKeptRows(step) * RowBytes(graph_.tensors[tensor]);
      if (bands.IsInternal(step)) {
        output.size = rows * RowBytes(graph_.tensors[tensor]);
        output.last_use = std::max(static_cast<int32_t>(step), steps_[step].last_reader);
      } else {
        extend(output);
      }
    }
    (*blocks)[ScratchBlock(step)].size = lowered_[step]->scratch_bytes(rows);
    (*blocks)[KeptBlock(step)] = {kept_bytes, first, last};
    for (const int32_t tensor : node.inputs) {
      if (tensor < 0) continue;
      const size_t root = TensorBlock(tensor);
      const bool inside = writer_[root] >= first && writer_[root] <= last;
      if (!inside) extend((*blocks)[root]);
    }
    extend((*blocks)[ParameterBlock(step)]);
  }
  if (bands.arriving() >= 0) {
    (*blocks)[Number(bands.arriving())] = {2 * InputBufferBytes(bands), first, last};
  }
}

// Of each of the two buffers of the input that arrives.
int64_t Compilation::InputBufferBytes(const RowBands& bands) const {
  return Rounded(bands.InputBandRows() * RowBytes(graph_.tensors[bands.arriving()]));
}

// Of the buffer for one part.
int64_t Compilation::PartBytes(size_t step) const {
  const ChannelRange part = Part(step, 0);
  return Rounded(lowered_[step]->PartParameterBytes(part.begin, part.end));
}

int64_t Compilation::ResidentBytes() const {
  int64_t bytes = 0;
  for (size_t step = 0; step < set_.size(); ++step) {
    if (!layout_.streamed[step]) bytes += Rounded(ParameterBytes(step));
  }
  return bytes;
}

bool Compilation::PlanFits() {
  const std::vector<MemoryBlock> blocks = MakeBlocks();
  const int64_t free_bytes = MemoryBytes() - ResidentBytes();
  if (MemoryLowerBound(blocks, kOnChipAlignment) > free_bytes) return false;
  plan_ = PlanMemory(blocks, kOnChipAlignment);
  return plan_.total <= free_bytes;
}

// A chained ADD must not write onto what its convolution reads, so that lives until the ADD has
// run, too, where it takes no more memory.
void Compilation::MakeRoomForChains() {
  std::vector<MemoryBlock> blocks = MakeBlocks();
  std::vector<MemoryBlock> rounded = blocks;
  for (MemoryBlock& block : rounded) block.size = Rounded(block.size);
  std::vector<int64_t> alive = BytesAlive(rounded);
  for (size_t step = 0; step + 1 < set_.size(); ++step) {
    if (NodeAt(step).type != OpType::kCONV_2D || NodeAt(step + 1).type != OpType::kADD) continue;
    MemoryBlock& input = blocks[TensorBlock(NodeAt(step).inputs[0])];
    if (input.last_use > static_cast<int32_t>(step)) continue;
    if (alive[step + 1] + Rounded(input.size) > plan_.total) continue;
    alive[step + 1] += Rounded(input.size);
    input.last_use = static_cast<int32_t>(step) + 1;
  }
  MemoryPlan plan = PlanMemory(blocks, kOnChipAlignment);
  if (plan.total <= plan_.total) plan_ = std::move(plan);
}

// Of each step.
std::vector<int64_t> Compilation::BytesAlive(const std::vector<MemoryBlock>& blocks) const {
  const int32_t steps = static_cast<int32_t>(set_.size());
  std::vector<int64_t> alive(set_.size() + 1);
  for (const MemoryBlock& block : blocks) {
    const int32_t begin = std::max(block.first_use, 0);
    const int32_t end = std::min(block.last_use + 1, steps);
    if (begin >= end) continue;
    alive[begin] += block.size;
    alive[end] -= block.size;
  }
  for (size_t step = 1; step < alive.size(); ++step) alive[step] += alive[step - 1];
  alive.pop_back();
  return alive;
}

// The step at which the most bytes are alive.
size_t Compilation::StepAtPeak(const std::vector<MemoryBlock>& blocks) const {
  const std::vector<int64_t> alive = BytesAlive(blocks);
  return std::max_element(alive.begin(), alive.end()) - alive.begin();
}

}  // namespace atollrt
