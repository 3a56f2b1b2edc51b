// SPDX-License-Identifier: Apache-2.0
#include "delegate/row_bands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/model_builder.h"

namespace atollrt {
namespace {

using ::testing::ElementsAre;

// The steps of a model of images, all of them in one set.
class Steps {
 public:
  explicit Steps(const ModelBuilder& m) : model_(m.Load()) {
    const Graph& graph = model_->graph();
    for (const Node& node : graph.nodes) {
      auto lowering = LowerNode(graph, node);
      EXPECT_TRUE(lowering.ok()) << lowering.status().message();
      lowered_.push_back(*std::move(lowering));
      steps_.push_back({.node = &node,
                        .lowering = lowered_.back().get(),
                        .output_rows = RowCount(graph.Output(node))});
    }
    for (size_t step = 0; step < steps_.size(); ++step) {
      const int32_t output = steps_[step].node->outputs[0];
      for (size_t reader = 0; reader < steps_.size(); ++reader) {
        for (const int32_t input : steps_[reader].node->inputs) {
          if (input == output) steps_[step].last_reader = static_cast<int32_t>(reader);
        }
      }
      for (const int32_t tensor : graph.outputs) {
        if (tensor == output) steps_[step].last_reader = static_cast<int32_t>(steps_.size());
      }
    }
  }
  const std::vector<BandStep>& operator*() const { return steps_; }

 private:
  std::shared_ptr<const Model> model_;
  std::vector<std::unique_ptr<const NodeLowering>> lowered_;
  std::vector<BandStep> steps_;
};

std::vector<RowRange> RowsOf(const RowBands& bands, size_t step) {
  std::vector<RowRange> rows;
  for (int32_t band = 0; band < bands.bands(); ++band) rows.push_back(bands.Rows(band, step));
  return rows;
}

TEST(RowBands, GiveInnerStepsTheRowsUnderTheWindows) {
  ModelBuilder m;
  const int32_t x = m.Conv2D(m.Input({1, 16, 4, 1}), {.channels = 2});
  m.Output(m.Conv2D(x, {.channels = 2, .kernel = 3}));
  const Steps steps(m);
  const RowBands bands(*steps, {}, 0, 1, 4);
  EXPECT_THAT(RowsOf(bands, 1),
              ElementsAre(RowRange{0, 4}, RowRange{4, 8}, RowRange{8, 12}, RowRange{12, 16}));
  EXPECT_THAT(RowsOf(bands, 0),
              ElementsAre(RowRange{0, 5}, RowRange{3, 9}, RowRange{7, 13}, RowRange{11, 16}));
  EXPECT_TRUE(bands.IsInternal(0));
  EXPECT_FALSE(bands.IsInternal(1));
  EXPECT_EQ(bands.BandRows(0), 6);
  EXPECT_EQ(bands.BandRows(1), 4);
}

TEST(RowBands, ComputeEveryRowOnce) {
  ModelBuilder m;
  const int32_t x = m.Conv2D(m.Input({1, 16, 4, 1}), {.channels = 2});
  m.Output(m.Conv2D(x, {.channels = 2, .kernel = 3}));
  const Steps steps(m);
  const RowBands bands(*steps, {}, 0, 1, 4);
  std::vector<RowRange> computed, kept;
  for (int32_t band = 0; band < 4; ++band) {
    computed.push_back(bands.ComputedRows(band, 0));
    kept.push_back(bands.KeptRows(band, 0));
    EXPECT_EQ(bands.ComputedRows(band, 1), bands.Rows(band, 1));
  }
  EXPECT_THAT(computed,
              ElementsAre(RowRange{0, 5}, RowRange{5, 9}, RowRange{9, 13}, RowRange{13, 16}));
  EXPECT_THAT(kept, ElementsAre(RowRange{0, 0}, RowRange{3, 5}, RowRange{7, 9}, RowRange{11, 13}));
  EXPECT_EQ(bands.MostKeptRows(0), 2);
  EXPECT_EQ(bands.MostKeptRows(1), 0);
}

// The deeper the step, the fewer the rows that the first ones need for it: they have been computed.
TEST(RowBands, NeedNoMoreRowsForMoreSteps) {
  ModelBuilder m;
  int32_t x = m.Input({1, 40, 4, 1});
  for (int i = 0; i < 6; ++i) x = m.Conv2D(x, {.channels = 1, .kernel = 3});
  m.Output(x);
  const Steps steps(m);
  const RowBands bands(*steps, {}, 0, 5, 4);
  EXPECT_THAT(RowsOf(bands, 0),
              ElementsAre(RowRange{0, 15}, RowRange{13, 25}, RowRange{23, 35}, RowRange{33, 40}));
}

TEST(RowBands, FollowStrides) {
  ModelBuilder m;
  const int32_t x = m.Conv2D(m.Input({1, 16, 4, 1}), {.channels = 2});
  m.Output(m.MaxPool(x, {.size = 2, .stride = 2}));
  const Steps steps(m);
  EXPECT_THAT(RowsOf(RowBands(*steps, {}, 0, 1, 2), 0),
              ElementsAre(RowRange{0, 8}, RowRange{8, 16}));
}

// Both branches read what the first step makes; the wider window decides.
TEST(RowBands, CoverEveryReader) {
  ModelBuilder m;
  const int32_t x = m.Conv2D(m.Input({1, 12, 4, 1}), {.channels = 2});
  const int32_t y = m.Conv2D(x, {.channels = 2, .kernel = 5});
  m.Output(m.Add(x, y));
  const Steps steps(m);
  EXPECT_THAT(RowsOf(RowBands(*steps, {}, 0, 2, 2), 0),
              ElementsAre(RowRange{0, 8}, RowRange{4, 12}));
}

// A tensor that leaves is computed once as a whole, however little of it the members read.
TEST(RowBands, CoverWhatOthersRead) {
  ModelBuilder m;
  const int32_t x = m.Conv2D(m.Input({1, 12, 4, 1}), {.channels = 2});
  m.Output(x);
  m.Output(m.MaxPool(x, {.size = 1, .stride = 4}));
  const Steps steps(m);
  const RowBands bands(*steps, {}, 0, 1, 3);
  EXPECT_FALSE(bands.IsInternal(0));
  EXPECT_THAT(RowsOf(bands, 0), ElementsAre(RowRange{0, 4}, RowRange{4, 8}, RowRange{8, 12}));
}

TEST(RowBands, MayBeMoreThanThereAreRows) {
  ModelBuilder m;
  m.Output(m.Relu(m.Conv2D(m.Input({1, 2, 4, 1}), {.channels = 2})));
  const Steps steps(m);
  const RowBands bands(*steps, {}, 0, 1, 4);
  int32_t rows = 0;
  for (int32_t band = 0; band < 4; ++band) rows += bands.Rows(band, 1).count();
  EXPECT_EQ(rows, 2);
}

// ---- Rows that come and go ----------------------------------------------------------------------

std::vector<RowRange> InputRowsOf(const RowBands& bands) {
  std::vector<RowRange> rows;
  for (int32_t band = 0; band < bands.bands(); ++band) rows.push_back(bands.InputRows(band));
  return rows;
}

TEST(RowBands, KeepTheInputsRowsUntilNoBandReadsThem) {
  ModelBuilder m;
  const int32_t input = m.Input({1, 32, 4, 1});
  const int32_t x = m.Conv2D(input, {.channels = 2, .kernel = 3});
  m.Output(m.Conv2D(x, {.channels = 2, .kernel = 3}));
  const Steps steps(m);
  const ArrivingInput arriving{.tensor = input, .rows = 32, .first_reader = 0, .last_reader = 0};
  const RowBands bands(*steps, arriving, 0, 1, 4);
  EXPECT_EQ(bands.arriving(), input);
  EXPECT_THAT(InputRowsOf(bands),
              ElementsAre(RowRange{0, 10}, RowRange{8, 18}, RowRange{16, 26}, RowRange{24, 32}));
  EXPECT_EQ(bands.InputBandRows(), 10);
}

// Rows 0, 4, 8 ... are read, but all of them arrive.
TEST(RowBands, TakeRowsThatNobodyReads) {
  ModelBuilder m;
  const int32_t input = m.Input({1, 32, 4, 1});
  const int32_t x = m.MaxPool(input, {.size = 1, .stride = 4});
  m.Output(m.Relu(x));
  const Steps steps(m);
  const ArrivingInput arriving{.tensor = input, .rows = 32, .first_reader = 0, .last_reader = 0};
  EXPECT_THAT(InputRowsOf(RowBands(*steps, arriving, 0, 1, 4)),
              ElementsAre(RowRange{0, 5}, RowRange{5, 13}, RowRange{13, 21}, RowRange{21, 32}));
}

TEST(RowBands, HaveTheWholeInputIfTheirsIsNotMuchLess) {
  ModelBuilder m;
  const int32_t input = m.Input({1, 32, 4, 1});
  m.Output(m.Relu(m.Conv2D(input, {.channels = 2, .kernel = 3})));
  const Steps steps(m);
  const ArrivingInput arriving{.tensor = input, .rows = 32, .first_reader = 0, .last_reader = 0};
  EXPECT_EQ(RowBands(*steps, arriving, 0, 1, 2).arriving(), -1);
  EXPECT_EQ(RowBands(*steps, arriving, 0, 1, 3).arriving(), input);
}

TEST(RowBands, HaveTheWholeInputIfStepsElsewhereReadIt) {
  ModelBuilder m;
  const int32_t input = m.Input({1, 32, 4, 1});
  const int32_t x = m.Relu(m.Relu(input));
  m.Output(m.Add(x, input));
  const Steps steps(m);
  const ArrivingInput arriving{.tensor = input, .rows = 32, .first_reader = 0, .last_reader = 2};
  EXPECT_EQ(RowBands(*steps, arriving, 0, 1, 4).arriving(), -1);
  EXPECT_EQ(RowBands(*steps, arriving, 0, 2, 4).arriving(), input);
}

// The second step reads more rows than those that leave.
TEST(RowBands, SendEveryRowOnce) {
  ModelBuilder m;
  const int32_t x = m.Relu(m.Input({1, 16, 4, 1}));
  m.Output(x);
  m.Output(m.Mean(m.Conv2D(x, {.channels = 2, .kernel = 3}), {1, 2}));
  const Steps steps(m);
  std::vector<BandStep> sending = *steps;
  sending[0].last_reader = 1;
  sending[0].may_send_rows = true;
  const RowBands bands(sending, {}, 0, 1, 2);
  EXPECT_TRUE(bands.IsInternal(0));
  EXPECT_TRUE(bands.Sends(0));
  EXPECT_FALSE(bands.Sends(1));
  EXPECT_THAT(RowsOf(bands, 0), ElementsAre(RowRange{0, 9}, RowRange{7, 16}));
  EXPECT_EQ(bands.SentRows(0), (RowRange{0, 8}));
  EXPECT_EQ(bands.SentRows(1), (RowRange{8, 16}));
}

// Its input comes and its output goes in rows, so neither is ever there as a whole.
TEST(RowBands, MayBeOfOneStep) {
  ModelBuilder m;
  const int32_t input = m.Input({1, 32, 4, 1});
  m.Output(m.Conv2D(input, {.channels = 2, .kernel = 3}));
  const Steps steps(m);
  std::vector<BandStep> sending = *steps;
  sending[0].last_reader = 0;
  sending[0].may_send_rows = true;
  const ArrivingInput arriving{.tensor = input, .rows = 32, .first_reader = 0, .last_reader = 0};
  const RowBands bands(sending, arriving, 0, 0, 4);
  EXPECT_EQ(bands.arriving(), input);
  EXPECT_THAT(InputRowsOf(bands),
              ElementsAre(RowRange{0, 9}, RowRange{7, 17}, RowRange{15, 25}, RowRange{23, 32}));
  EXPECT_TRUE(bands.Sends(0));
  EXPECT_EQ(bands.BandRows(0), 8);
}

TEST(RowBands, CostTheIssue) {
  ModelBuilder m;
  const int32_t x = m.DepthwiseConv2D(m.Input({1, 16, 4, 8}), {.kernel = 3});
  m.Output(m.DepthwiseConv2D(x, {.kernel = 3}));
  const Steps steps(m);
  const ArraySize array{64, 64};
  const uint64_t whole = RowBands(*steps, {}, 0, 1, 1).Cycles(*steps, array);
  const uint64_t banded = RowBands(*steps, {}, 0, 1, 2).Cycles(*steps, array);
  EXPECT_EQ(banded - whole, 2 * kIssueCycles);
}

}  // namespace
}  // namespace atollrt
