// SPDX-License-Identifier: Apache-2.0
#include "bench/coral_calibration.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string_view>
#include <tuple>

#include "models/zoo/zoo.h"

namespace atollrt {
namespace {

// ---- The table ----------------------------------------------------------------------------------

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

constexpr std::string_view kHeader =
    "network,link,clock_mhz,kind,latency_ms,use,model,input,host,source";

Result<PublishedLatency::Kind> ReadKind(const std::string& text) {
  using Kind = PublishedLatency::Kind;
  const std::pair<const char*, Kind> kKinds[] = {{"single", Kind::kSingle},
                                                 {"first", Kind::kFirst},
                                                 {"co-compiled", Kind::kCoCompiled},
                                                 {"alternating", Kind::kAlternating}};
  for (const auto& [name, kind] : kKinds) {
    if (text == name) return kind;
  }
  return InvalidArgument("'%s' is no kind of measurement", text.c_str());
}

Result<PublishedLatency> ReadRow(const std::string& line) {
  const std::vector<std::string> fields = Split(line, ',');
  if (fields.size() != 10) return InvalidArgument("%zu fields, must be 10", fields.size());
  PublishedLatency row;
  if (!fields[0].empty()) row.networks = Split(fields[0], '+');
  row.link = fields[1];
  row.clock_hz = 1e6 * std::strtod(fields[2].c_str(), nullptr);
  ATOLL_ASSIGN_OR_RETURN(row.kind, ReadKind(fields[3]));
  row.seconds = 1e-3 * std::strtod(fields[4].c_str(), nullptr);
  row.is_for_fitting = fields[5] == "fit";
  row.model = fields[6];
  row.input = fields[7];
  row.host = fields[8];
  row.source = fields[9];
  if (!(row.clock_hz > 0) || !(row.seconds > 0)) {
    return InvalidArgument("clock '%s' and latency '%s' must be positive", fields[2].c_str(),
                           fields[4].c_str());
  }
  ATOLL_RETURN_IF_ERROR(FindCoralHost(row.link).status());
  return row;
}

// ---- Fitting ------------------------------------------------------------------------------------

// What a host's CPU needs for an inference at the very least: a figure published for a Raspberry
// Pi Compute Module 4 (google-coral/edgetpu, issue 280). Without it the fit would give some host
// none at all and blame the link.
constexpr double kLeastRequestSeconds = 0.12e-3;

// The parameters as one vector of logarithms, so that all stay positive; of a request, the part
// above the least.
using Vector = std::vector<double>;
constexpr size_t kRateCount = 3;  // first in it

Vector Pack(const CoralCalibration& c) {
  Vector v = {std::log(c.rates.dense_macs_per_cycle), std::log(c.rates.vector_operations_per_cycle),
              std::log(c.rates.cycles_per_layer)};
  for (const CoralHost& host : c.hosts) {
    v.push_back(std::log(host.link_bytes_per_second));
    v.push_back(std::log(host.request_seconds - kLeastRequestSeconds));
  }
  return v;
}

CoralCalibration Unpack(const Vector& v) {
  CoralCalibration c = CommittedCalibration();
  c.rates = {.dense_macs_per_cycle = std::exp(v[0]),
             .vector_operations_per_cycle = std::exp(v[1]),
             .cycles_per_layer = std::exp(v[2])};
  for (size_t i = 0; i < c.hosts.size(); ++i) {
    c.hosts[i].link_bytes_per_second = std::exp(v[3 + 2 * i]);
    c.hosts[i].request_seconds = kLeastRequestSeconds + std::exp(v[4 + 2 * i]);
  }
  return c;
}

// Round figures of the right size.
CoralCalibration Start() {
  CoralCalibration c = CommittedCalibration();
  c.rates = {
      .dense_macs_per_cycle = 2000, .vector_operations_per_cycle = 50, .cycles_per_layer = 2000};
  for (CoralHost& host : c.hosts) {
    const bool is_usb2 = std::string_view(host.name) == "usb2";
    host.link_bytes_per_second = is_usb2 ? 35e6 : 400e6;
    host.request_seconds = 1e-3;
  }
  return c;
}

// Solves a x = b in place for a symmetric positive definite matrix, by Cholesky's decomposition.
Vector Solve(std::vector<Vector> a, Vector b) {
  const size_t n = b.size();
  for (size_t j = 0; j < n; ++j) {
    for (size_t k = 0; k < j; ++k) a[j][j] -= a[j][k] * a[j][k];
    a[j][j] = std::sqrt(a[j][j]);
    for (size_t i = j + 1; i < n; ++i) {
      for (size_t k = 0; k < j; ++k) a[i][j] -= a[i][k] * a[j][k];
      a[i][j] /= a[j][j];
    }
  }
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < i; ++k) b[i] -= a[i][k] * b[k];
    b[i] /= a[i][i];
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t k = i + 1; k < n; ++k) b[i] -= a[k][i] * b[k];
    b[i] /= a[i][i];
  }
  return b;
}

struct Observation {
  const PublishedLatency* row;
  double weight;  // 1 for all rows of a network on a link and clock together
};

// Levenberg's and Marquardt's method with the weights of the pseudo-Huber loss.
class Fitter {
 public:
  // Only the first `free_parameters` of a vector change.
  Fitter(std::vector<Observation> observations, const CoralPredictor& predictor,
         size_t free_parameters)
      : observations_(std::move(observations)),
        predictor_(predictor),
        free_parameters_(free_parameters) {}

  Vector Fit(Vector v) const {
    constexpr int kMaxSteps = 2000;
    double damping = 1e-3;
    double loss = Loss(Errors(v));
    for (int step = 0; step < kMaxSteps && damping < 1e12; ++step) {
      const Vector next = Step(v, damping);
      const double next_loss = Loss(Errors(next));
      if (next_loss < loss) {
        const bool is_done = loss - next_loss < 1e-15 * loss;
        v = next;
        loss = next_loss;
        damping = std::max(damping / 3, 1e-12);
        if (is_done) break;
      } else {
        damping *= 4;
      }
    }
    return v;
  }

 private:
  static constexpr double kScale = 0.05;  // how far published figures for one network differ

  Vector Errors(const Vector& v) const {
    const CoralCalibration calibration = Unpack(v);
    Vector errors;
    for (const Observation& o : observations_) {
      errors.push_back(std::log(predictor_.Predict(*o.row, calibration) / o.row->seconds));
    }
    return errors;
  }

  double Loss(const Vector& errors) const {
    double loss = 0;
    for (size_t i = 0; i < errors.size(); ++i) {
      const double e = errors[i] / kScale;
      loss += observations_[i].weight * (std::sqrt(1 + e * e) - 1);
    }
    return loss;
  }

  Vector Step(const Vector& v, double damping) const {
    constexpr double kDifference = 1e-5;
    const size_t n = free_parameters_;
    const Vector errors = Errors(v);
    std::vector<Vector> jacobian;  // by parameter
    for (size_t p = 0; p < n; ++p) {
      Vector up = v, down = v;
      up[p] += kDifference;
      down[p] -= kDifference;
      Vector slope = Errors(up);
      const Vector below = Errors(down);
      for (size_t i = 0; i < slope.size(); ++i) {
        slope[i] = (slope[i] - below[i]) / (2 * kDifference);
      }
      jacobian.push_back(std::move(slope));
    }
    std::vector<Vector> matrix(n, Vector(n));
    Vector right(n);
    for (size_t i = 0; i < errors.size(); ++i) {
      const double e = errors[i] / kScale;
      const double weight = observations_[i].weight / std::sqrt(1 + e * e);
      for (size_t p = 0; p < n; ++p) {
        right[p] -= weight * jacobian[p][i] * errors[i];
        for (size_t q = 0; q < n; ++q) matrix[p][q] += weight * jacobian[p][i] * jacobian[q][i];
      }
    }
    for (size_t p = 0; p < n; ++p) matrix[p][p] = matrix[p][p] * (1 + damping) + 1e-9;
    const Vector change = Solve(std::move(matrix), std::move(right));
    Vector next = v;
    for (size_t p = 0; p < n; ++p) next[p] += change[p];
    return next;
  }

  const std::vector<Observation> observations_;
  const CoralPredictor& predictor_;
  const size_t free_parameters_;
};

}  // namespace

Result<std::vector<PublishedLatency>> ReadPublishedLatencies(const std::string& path) {
  std::ifstream file(path);
  if (!file) return NotFound("cannot read '%s'", path.c_str());
  std::string line;
  if (!std::getline(file, line) || line != kHeader) {
    return InvalidArgument("%s: the first line must be '%s'", path.c_str(),
                           std::string(kHeader).c_str());
  }
  std::vector<PublishedLatency> rows;
  for (int number = 2; std::getline(file, line); ++number) {
    Result<PublishedLatency> row = ReadRow(line);
    if (!row.ok()) {
      return Status(row.status()).WithContext(Format("%s:%d", path.c_str(), number));
    }
    rows.push_back(*std::move(row));
  }
  return rows;
}

CoralCalibration CommittedCalibration() {
  return {FittedCoralRates(), {CoralHosts().begin(), CoralHosts().end()}};
}

Result<CoralPredictor> CoralPredictor::Create(const std::vector<PublishedLatency>& rows) {
  CoralPredictor predictor;
  for (const PublishedLatency& row : rows) {
    for (const std::string& network : row.networks) {
      if (predictor.programs_.count(network) > 0) continue;
      ATOLL_ASSIGN_OR_RETURN(const ZooModel model,
                             BuildZooModel(network, {.weights = ZooOptions::Weights::kZero}));
      ATOLL_ASSIGN_OR_RETURN(predictor.programs_[network], DescribeForCoral(model.graph));
    }
  }
  return predictor;
}

double CoralPredictor::Predict(const PublishedLatency& row,
                               const CoralCalibration& calibration) const {
  CoralSetup setup = {.rates = calibration.rates, .host = {}, .clock_hz = row.clock_hz};
  for (const CoralHost& host : calibration.hosts) {
    if (row.link == host.name) setup.host = host;
  }
  std::vector<TimedCoralProgram> programs;
  for (const std::string& network : row.networks) programs.push_back(program(network));
  double seconds = 0;
  if (row.kind == PublishedLatency::Kind::kCoCompiled) {
    for (const CoralEstimate& e : EstimateCoCompiled(programs, setup)) seconds += e.seconds();
    return seconds;
  }
  for (const TimedCoralProgram& each : programs) {
    const CoralEstimate e = EstimateCoral(each, setup);
    seconds += e.seconds();
    if (row.kind != PublishedLatency::Kind::kSingle) seconds += e.upload_seconds;
  }
  return seconds;
}

RowUse UseOf(const PublishedLatency& row, const CoralPredictor& predictor) {
  constexpr std::string_view kExcluded[] = {"densenet121_224", "inception_resnet_v2_299"};
  if (row.networks.empty()) return RowUse::kUnknown;
  for (const std::string& network : row.networks) {
    if (predictor.program(network).host_nodes > 0) return RowUse::kPartly;
    if (std::count(std::begin(kExcluded), std::end(kExcluded), network) > 0) {
      return RowUse::kExcluded;
    }
  }
  if (row.kind != PublishedLatency::Kind::kSingle) return RowUse::kSwitch;
  return row.is_for_fitting ? RowUse::kFit : RowUse::kTest;
}

void MeanErrors::Add(const std::string& network, double relative_error) {
  by_network_[network].push_back(std::abs(relative_error));
  ++rows_;
}

double MeanErrors::Mean() const {
  double sum = 0;
  for (const auto& [network, errors] : by_network_) sum += Mean(network);
  return sum / static_cast<double>(by_network_.size());
}

double MeanErrors::Mean(const std::string& network) const {
  const std::vector<double>& errors = by_network_.at(network);
  double sum = 0;
  for (const double error : errors) sum += error;
  return sum / static_cast<double>(errors.size());
}

CoralCalibration FitCoral(const std::vector<PublishedLatency>& rows,
                          const CoralPredictor& predictor, const FitOptions& options) {
  const auto is_used = [&options, &predictor](const PublishedLatency& row) {
    return UseOf(row, predictor) == RowUse::kFit && row.networks[0] != options.without;
  };
  const auto group = [](const PublishedLatency& row) {
    return std::tuple(row.networks[0], row.link, row.clock_hz);
  };
  std::map<std::tuple<std::string, std::string, double>, int> counts;
  for (const PublishedLatency& row : rows) {
    if (is_used(row)) ++counts[group(row)];
  }
  std::vector<Observation> observations;
  for (const PublishedLatency& row : rows) {
    if (is_used(row)) observations.push_back({&row, 1.0 / counts[group(row)]});
  }
  CoralCalibration start = Start();
  size_t free_parameters = Pack(start).size();
  if (options.what == FitOptions::What::kRates) {
    start.hosts = CommittedCalibration().hosts;
    free_parameters = kRateCount;
  }
  return Unpack(Fitter(std::move(observations), predictor, free_parameters).Fit(Pack(start)));
}

}  // namespace atollrt
