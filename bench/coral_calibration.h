// SPDX-License-Identifier: Apache-2.0
//
// Published latencies of the Coral Edge TPU beside what delegate/coral_timing.h predicts for the
// same networks, and the fit of its parameters. For coral_fit and fidelity.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "delegate/coral_timing.h"

namespace atollrt {

// One row of coral_latencies.csv.
struct PublishedLatency {
  enum class Kind {
    kSingle,       // one inference after another of one network
    kFirst,        // the first inference, which also uploads the parameters
    kCoCompiled,   // one inference of each of two networks that share the chip's memory
    kAlternating,  // one of each of two that evict each other
  };
  std::vector<std::string> networks;  // of the zoo; none: its layers are not known
  std::string link;                   // a CoralHost
  double clock_hz = 0;
  Kind kind = Kind::kSingle;
  double seconds = 0;
  bool is_for_fitting = false;
  std::string model, input, host, source;  // as published
};
// kNotFound if the file cannot be read; kInvalidArgument naming the first line that is no row.
Result<std::vector<PublishedLatency>> ReadPublishedLatencies(const std::string& path);

// Everything that is fitted.
struct CoralCalibration {
  CoralRates rates;
  std::vector<CoralHost> hosts;  // those of CoralHosts(), in its order
};
CoralCalibration CommittedCalibration();

// Predictions for rows of the table; networks are built once.
class CoralPredictor {
 public:
  // Describes the networks of all rows. kNotFound for one that the zoo does not have.
  static Result<CoralPredictor> Create(const std::vector<PublishedLatency>& rows);

  const TimedCoralProgram& program(const std::string& network) const {
    return programs_.at(network);
  }
  // Seconds; the row must have networks.
  double Predict(const PublishedLatency& row, const CoralCalibration& calibration) const;

 private:
  std::map<std::string, TimedCoralProgram> programs_;
};

// What a row is good for.
enum class RowUse {
  kFit,
  kTest,      // one inference of a network that is never fitted
  kSwitch,    // first inferences and pairs of networks
  kPartly,    // includes operators on the host, which the prediction does not
  kExcluded,  // in the zoo, but not held to: docs/fidelity.md says why
  kUnknown,   // no certain list of layers
};
RowUse UseOf(const PublishedLatency& row, const CoralPredictor& predictor);

// The mean over networks of the mean magnitude of their rows' relative errors.
class MeanErrors {
 public:
  void Add(const std::string& network, double relative_error);
  int rows() const { return rows_; }
  size_t networks() const { return by_network_.size(); }
  double Mean() const;  // of at least one row
  double Mean(const std::string& network) const;

 private:
  std::map<std::string, std::vector<double>> by_network_;
  int rows_ = 0;
};

struct FitOptions {
  enum class What {
    kAll,
    kRates,  // the chip's; those of links and hosts stay as committed
  } what = What::kAll;
  std::string without;  // a network whose rows are left out
};
// Fits parameters to the rows that are for fitting, from a fixed start. Every network on every link
// and clock counts the same, however often it was measured; the loss of a row is quadratic for
// small relative errors and linear for larger ones, so that single odd measurements hardly matter.
// Deterministic.
CoralCalibration FitCoral(const std::vector<PublishedLatency>& rows,
                          const CoralPredictor& predictor, const FitOptions& options = {});

}  // namespace atollrt
