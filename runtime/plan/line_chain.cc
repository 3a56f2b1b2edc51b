// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/line_chain.h"

#include <algorithm>
#include <cstring>

#include "atoll/check.h"
#include "runtime/base/buffer.h"
#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

// Windows of one thread, together: they share a level 2 cache with weights, input and output.
constexpr int64_t kWindowBytes = 96 << 10;
// Smaller tensors stay in a level 2 cache anyway.
constexpr int64_t kMinTensorBytes = 160 << 10;
// Weights are read again for each band.
constexpr int64_t kMaxWeightBytes = 128 << 10;
// Threads compute some lines of all but the last output twice; more with each stage.
constexpr size_t kMaxStages = 4;

int64_t OutputLineBytes(const LineRunner& runner) {
  const ConvShape& s = runner.shape();
  return int64_t{s.output_w} * s.output_c;
}

}  // namespace

// The lines of one tensor in between that are in memory.
struct LineChain::Window {
  uint8_t* data;
  LineRange lines;
};

LineChain::LineChain(std::vector<LineStage> stages) : stages_(std::move(stages)) {
  ATOLL_CHECK(stages_.size() >= 2);
  size_t input = 1;
  for (const LineStage& stage : stages_) {
    tail_inputs_.push_back(input);
    if (stage.tail != nullptr) ++input;
  }
  window_lines_.resize(stages_.size() - 1);
  ChooseBand();
}

// As many lines as fit; windows for one are always granted.
void LineChain::ChooseBand() {
  const int32_t lines = stages_.back().runner->shape().output_h;
  for (int32_t band = 1; band <= lines; ++band) {
    std::vector<int32_t> windows(window_lines_.size());
    int64_t bytes = 0;
    int64_t needed = band;  // of stage i
    for (size_t i = stages_.size() - 1; i > 0; --i) {
      const ConvShape& s = stages_[i].runner->shape();
      needed = (needed - 1) * s.stride_h + int64_t{s.kernel_h - 1} * s.dilation_h + 1;
      needed = std::min<int64_t>(needed, s.input_h);
      windows[i - 1] = static_cast<int32_t>(needed);
      bytes += needed * OutputLineBytes(*stages_[i - 1].runner);
    }
    if (band > 1 && bytes > kWindowBytes) break;
    band_lines_ = band;
    window_lines_ = windows;
  }
}

size_t LineChain::WorkerScratchBytes() const {
  size_t bytes = 0;
  for (size_t i = 0; i < window_lines_.size(); ++i) {
    bytes += AlignUp(static_cast<uint64_t>(window_lines_[i] * OutputLineBytes(*stages_[i].runner)),
                     Buffer::kAlignment);
  }
  size_t stage_bytes = 0;
  for (const LineStage& stage : stages_) {
    stage_bytes = std::max(stage_bytes, stage.runner->LineScratchBytes());
  }
  return bytes + AlignUp(stage_bytes, Buffer::kAlignment);
}

size_t LineChain::ScratchBytes(int threads) const {
  return static_cast<size_t>(threads) * WorkerScratchBytes();
}

Status LineChain::Invoke(const NodeIo& io) {
  const int64_t lines = stages_.back().runner->shape().output_h;
  const int tasks = io.pool->threads();
  const size_t worker_bytes = WorkerScratchBytes();
  ParallelFor(io.pool, tasks, [&](int task, int worker) {
    RunBand(io,
            {static_cast<int32_t>(lines * task / tasks),
             static_cast<int32_t>(lines * (task + 1) / tasks)},
            io.scratch + static_cast<size_t>(worker) * worker_bytes);
  });
  return Status();
}

void LineChain::RunStage(size_t stage, const LineWindow& input, LineRange lines, const NodeIo& io,
                         uint8_t* output, uint8_t* scratch) const {
  const LineRunner& runner = *stages_[stage].runner;
  runner.RunLines(input, lines, output, scratch);
  if (stages_[stage].tail == nullptr) return;
  const int64_t line_bytes = OutputLineBytes(runner);
  stages_[stage].tail->Run(output, io.inputs[tail_inputs_[stage]] + lines.first * line_bytes,
                           output, (lines.end - lines.first) * line_bytes);
}

void LineChain::RunBand(const NodeIo& io, LineRange lines, uint8_t* scratch) const {
  const uint8_t* const input = io.inputs[0];
  uint8_t* const output = io.outputs[0];
  const size_t last = stages_.size() - 1;
  const ConvShape& first_shape = stages_[0].runner->shape();
  const LineWindow whole_input = {
      .data = input, .end = input + first_shape.InputBytes(), .lines = {0, first_shape.input_h}};
  Window windows[kMaxStages];
  for (size_t i = 0; i < last; ++i) {
    windows[i] = {scratch, {0, 0}};
    scratch +=
        AlignUp(static_cast<uint64_t>(window_lines_[i] * OutputLineBytes(*stages_[i].runner)),
                Buffer::kAlignment);
  }
  const auto input_of = [&](size_t stage) -> LineWindow {
    if (stage == 0) return whole_input;
    const Window& window = windows[stage - 1];
    const int64_t count = window.lines.end - window.lines.first;
    return {.data = window.data,
            .end = window.data + count * OutputLineBytes(*stages_[stage - 1].runner),
            .lines = window.lines};
  };

  for (int32_t line = lines.first; line < lines.end; line += band_lines_) {
    LineRange needed[kMaxStages];  // of each stage's output
    needed[last] = {line, std::min(line + band_lines_, lines.end)};
    for (size_t i = last; i > 0; --i)
      needed[i - 1] = InputLinesOf(stages_[i].runner->shape(), needed[i]);
    for (size_t i = 0; i < last; ++i) {
      Window& window = windows[i];
      const int64_t line_bytes = OutputLineBytes(*stages_[i].runner);
      // What is still needed moves to the beginning.
      const int32_t kept = std::max(window.lines.end - needed[i].first, 0);
      if (kept > 0) {
        std::memmove(window.data, window.data + (needed[i].first - window.lines.first) * line_bytes,
                     static_cast<size_t>(kept * line_bytes));
      }
      const LineRange missing = {needed[i].first + kept, needed[i].end};
      if (missing.first < missing.end) {
        RunStage(i, input_of(i), missing, io, window.data + kept * line_bytes, scratch);
      }
      window.lines = {needed[i].first, std::max(needed[i].end, missing.first)};
    }
    RunStage(last, input_of(last), needed[last], io,
             output + line * OutputLineBytes(*stages_[last].runner), scratch);
  }
}

std::vector<std::vector<size_t>> FindLineChains(const Graph& graph,
                                                const std::vector<ChainStep>& steps) {
  std::vector<int32_t> readers(graph.tensors.size());
  std::vector<size_t> reader(graph.tensors.size());
  for (const int32_t tensor : graph.outputs) ++readers[tensor];
  for (size_t i = 0; i < steps.size(); ++i) {
    for (const int32_t tensor : steps[i].inputs) {
      if (tensor < 0) continue;
      ++readers[tensor];
      reader[tensor] = i;
    }
  }
  const auto can_join = [&](size_t step) {
    const LineRunner* runner = steps[step].runner;
    return runner != nullptr && runner->shape().batch == 1 &&
           runner->WeightBytes() <= kMaxWeightBytes;
  };
  // Tensors that could be in between, by the step that writes them; the largest ones have the first
  // choice, as chains are short.
  std::vector<size_t> writers;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (!can_join(i)) continue;
    const int32_t tensor = steps[i].outputs[0];
    const Tensor& t = graph.tensors[tensor];
    if (readers[tensor] != 1 || t.is_variable || t.byte_size() < kMinTensorBytes) continue;
    if (can_join(reader[tensor]) && steps[reader[tensor]].inputs[0] == tensor) writers.push_back(i);
  }
  std::sort(writers.begin(), writers.end(), [&](size_t a, size_t b) {
    const int64_t bytes_a = graph.tensors[steps[a].outputs[0]].byte_size();
    const int64_t bytes_b = graph.tensors[steps[b].outputs[0]].byte_size();
    return bytes_a != bytes_b ? bytes_a > bytes_b : a < b;
  });
  std::vector<std::vector<size_t>> chains(steps.size());  // by their first step
  std::vector<size_t> first_of(steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    chains[i] = {i};
    first_of[i] = i;
  }
  for (const size_t writer : writers) {
    std::vector<size_t>& chain = chains[first_of[writer]];
    std::vector<size_t>& rest = chains[reader[steps[writer].outputs[0]]];
    if (chain.size() + rest.size() > kMaxStages) continue;
    for (const size_t step : rest) first_of[step] = first_of[writer];
    chain.insert(chain.end(), rest.begin(), rest.end());
    rest.clear();
  }
  std::erase_if(chains, [](const std::vector<size_t>& chain) { return chain.size() < 2; });
  return chains;
}

}  // namespace atollrt
