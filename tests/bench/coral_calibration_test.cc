// SPDX-License-Identifier: Apache-2.0
//
// The fit of the Coral prediction: it finds parameters that are known, looks at no row that it must
// not see, and what it gives is good enough for other networks.
#include "bench/coral_calibration.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

namespace atollrt {
namespace {

using Rows = std::vector<PublishedLatency>;

class CoralFit : public testing::Test {
 protected:
  CoralFit()
      : rows_(*ReadPublishedLatencies(ATOLL_SOURCE_DIR "/bench/coral_latencies.csv")),
        predictor_(*CoralPredictor::Create(rows_)) {}

  const Rows rows_;
  const CoralPredictor predictor_;
};

void ExpectNear(const CoralCalibration& got, const CoralCalibration& want, double tolerance) {
  const auto expect_ratio = [tolerance](double a, double b) { EXPECT_NEAR(a / b, 1, tolerance); };
  expect_ratio(got.rates.dense_macs_per_cycle, want.rates.dense_macs_per_cycle);
  expect_ratio(got.rates.vector_operations_per_cycle, want.rates.vector_operations_per_cycle);
  expect_ratio(got.rates.cycles_per_layer, want.rates.cycles_per_layer);
  for (size_t i = 0; i < want.hosts.size(); ++i) {
    expect_ratio(got.hosts[i].link_bytes_per_second, want.hosts[i].link_bytes_per_second);
    expect_ratio(got.hosts[i].request_seconds, want.hosts[i].request_seconds);
  }
}

TEST_F(CoralFit, FindsParametersThatAreKnown) {
  CoralCalibration known = CommittedCalibration();
  known.rates = {
      .dense_macs_per_cycle = 1234, .vector_operations_per_cycle = 77, .cycles_per_layer = 4321};
  for (CoralHost& host : known.hosts) {
    host.link_bytes_per_second *= 1.3;
    host.request_seconds += 0.4e-3;
  }
  Rows rows = rows_;
  for (PublishedLatency& row : rows) {
    if (!row.networks.empty()) row.seconds = predictor_.Predict(row, known);
  }
  ExpectNear(FitCoral(rows, predictor_), known, 1e-3);
}

TEST_F(CoralFit, SeesOnlyRowsThatAreForFitting) {
  Rows rows = rows_;
  int changed = 0;
  for (PublishedLatency& row : rows) {
    if (row.is_for_fitting) continue;
    row.seconds *= 10;
    ++changed;
  }
  EXPECT_GT(changed, 100);
  ExpectNear(FitCoral(rows, predictor_), FitCoral(rows_, predictor_), 1e-12);
}

TEST_F(CoralFit, LeavesOutTheNetworkItIsToldTo) {
  const FitOptions options = {.without = "squeezenet_v1.0_224"};
  Rows rows = rows_;
  for (PublishedLatency& row : rows) {
    if (!row.networks.empty() && row.networks[0] == options.without) row.seconds *= 10;
  }
  ExpectNear(FitCoral(rows, predictor_, options), FitCoral(rows_, predictor_, options), 1e-12);
}

// What the project asks of the prediction.
TEST_F(CoralFit, IsGoodEnoughForOtherNetworksAndForModelSwitches) {
  MeanErrors others, switches;
  for (const PublishedLatency& row : rows_) {
    const RowUse use = UseOf(row, predictor_);
    if (use != RowUse::kTest && use != RowUse::kSwitch) continue;
    const double error = predictor_.Predict(row, CommittedCalibration()) / row.seconds - 1;
    if (use == RowUse::kTest) others.Add(row.networks[0], error);
    if (row.kind == PublishedLatency::Kind::kCoCompiled) switches.Add("compiled together", error);
    if (row.kind == PublishedLatency::Kind::kAlternating) switches.Add("alternating", error);
  }
  EXPECT_GE(others.networks(), 5u);
  EXPECT_LE(others.Mean(), 0.12);
  EXPECT_LE(switches.Mean("compiled together"), 0.10);
  EXPECT_LE(switches.Mean("alternating"), 0.10);
}

TEST(PublishedLatencies, NameTheLineThatIsNoRow) {
  const std::string path = testing::TempDir() + "latencies.csv";
  const std::string header = "network,link,clock_mhz,kind,latency_ms,use,model,input,host,source\n";
  const auto refusal = [&path](const std::string& text) {
    std::ofstream(path) << text;
    const auto rows = ReadPublishedLatencies(path);
    return rows.ok() ? std::string() : rows.status().message().substr(path.size());
  };
  EXPECT_EQ(refusal(header + ",usb3,500,single,2.5,test,a,b,c,d\n"), "");
  EXPECT_EQ(refusal(header + ",usb3,500,single,2.5,test,a,b,c\n"), ":2: 9 fields, must be 10");
  EXPECT_EQ(
      refusal(header + ",usb3,500,single,2.5,test,a,b,c,d\n,usb3,500,twice,2.5,test,a,b,c,d\n"),
      ":3: 'twice' is no kind of measurement");
  EXPECT_EQ(refusal(header + ",usb3,500,single,-1,test,a,b,c,d\n"),
            ":2: clock '500' and latency '-1' must be positive");
  EXPECT_EQ(refusal("a,b\n").substr(0, 26), ": the first line must be '");
}

}  // namespace
}  // namespace atollrt
