// SPDX-License-Identifier: Apache-2.0
//
// Brings the tables of docs/fidelity.md up to date: what delegate/coral_timing.h predicts beside
// what has been published. They stand between lines <!-- BEGIN name --> and <!-- END name -->.
//
//   fidelity bench/coral_latencies.csv docs/fidelity.md           rewrites the page
//   fidelity --check bench/coral_latencies.csv docs/fidelity.md   fails if it is not up to date
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "bench/coral_calibration.h"
#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

using Kind = PublishedLatency::Kind;

class Page {
 public:
  Page(std::vector<PublishedLatency> rows, CoralPredictor predictor)
      : rows_(std::move(rows)), predictor_(std::move(predictor)) {}

  std::map<std::string, std::string> Blocks() const {
    return {{"summary", Summary()},
            {"parameters", Parameters()},
            {"leave-one-out", LeaveOneOut()},
            {"fit", Rows(RowUse::kFit)},
            {"test", Rows(RowUse::kTest)},
            {"switches", Rows(RowUse::kSwitch)},
            {"partly", Rows(RowUse::kPartly)},
            {"excluded", Rows(RowUse::kExcluded)},
            {"unknown", UnknownRows()}};
  }

 private:
  double RelativeError(const PublishedLatency& row, const CoralCalibration& calibration) const {
    return predictor_.Predict(row, calibration) / row.seconds - 1;
  }

  static std::string Name(const PublishedLatency& row) {
    std::string name;
    for (const std::string& network : row.networks) name += (name.empty() ? "" : " + ") + network;
    return name;
  }

  static const char* KindText(const PublishedLatency& row) {
    switch (row.kind) {
      case Kind::kSingle:
        return row.clock_hz < kCoralMaxClockHz ? ", half clock" : "";
      case Kind::kFirst:
        return ", first inference";
      case Kind::kCoCompiled:
        return ", compiled together";
      case Kind::kAlternating:
        return ", alternating";
    }
    return "";
  }

  MeanErrors ErrorsOf(RowUse use, const std::set<Kind>& kinds) const {
    MeanErrors errors;
    for (const PublishedLatency& row : rows_) {
      if (UseOf(row, predictor_) == use && kinds.count(row.kind) > 0) {
        errors.Add(Name(row), RelativeError(row, calibration_));
      }
    }
    return errors;
  }

  std::string Summary() const {
    const struct {
      const char* what;
      MeanErrors errors;
    } kLines[] = {
        {"rows used for fitting", ErrorsOf(RowUse::kFit, {Kind::kSingle})},
        {"**other networks**, wholly on the device", ErrorsOf(RowUse::kTest, {Kind::kSingle})},
        {"**model switches**: two models, compiled together",
         ErrorsOf(RowUse::kSwitch, {Kind::kCoCompiled})},
        {"**model switches**: two models, alternating",
         ErrorsOf(RowUse::kSwitch, {Kind::kAlternating})},
        {"first inferences", ErrorsOf(RowUse::kSwitch, {Kind::kFirst})},
    };
    std::string text = "| | networks | rows | mean absolute error |\n|---|---|---|---|\n";
    for (const auto& line : kLines) {
      text += Format("| %s | %zu | %d | %.1f %% |\n", line.what, line.errors.networks(),
                     line.errors.rows(), 100 * line.errors.Mean());
    }
    return text;
  }

  std::string Parameters() const {
    std::string text = Format(
        "| parameter | value |\n|---|---|\n"
        "| convolutions and matrix products | %.0f multiply-accumulates per cycle |\n"
        "| depthwise convolutions, pooling, element-wise operators | %.1f operations per cycle |\n"
        "| every layer | %.0f cycles |\n",
        calibration_.rates.dense_macs_per_cycle, calibration_.rates.vector_operations_per_cycle,
        calibration_.rates.cycles_per_layer);
    for (const CoralHost& host : calibration_.hosts) {
      text += Format("| `%s`: %s | %.1f MB/s, %.2f ms per inference |\n", host.name, host.summary,
                     host.link_bytes_per_second * 1e-6, host.request_seconds * 1e3);
    }
    return text;
  }

  std::string LeaveOneOut() const {
    std::set<std::string> networks;
    for (const PublishedLatency& row : rows_) {
      if (UseOf(row, predictor_) == RowUse::kFit) networks.insert(row.networks[0]);
    }
    const MeanErrors fitted = ErrorsOf(RowUse::kFit, {Kind::kSingle});
    MeanErrors without_rates, without_all;
    std::string text =
        "| network | in the fit | left out of the chip's rates | left out of everything |\n"
        "|---|---|---|---|\n";
    for (const std::string& network : networks) {
      AddLeftOut(network, FitOptions::What::kRates, &without_rates);
      AddLeftOut(network, FitOptions::What::kAll, &without_all);
      text += Format("| %s | %.1f %% | %.1f %% | %.1f %% |\n", network.c_str(),
                     100 * fitted.Mean(network), 100 * without_rates.Mean(network),
                     100 * without_all.Mean(network));
    }
    return text + Format("| mean | %.1f %% | %.1f %% | %.1f %% |\n", 100 * fitted.Mean(),
                         100 * without_rates.Mean(), 100 * without_all.Mean());
  }

  // The errors of a network predicted by a fit that never saw it.
  void AddLeftOut(const std::string& network, FitOptions::What what, MeanErrors* errors) const {
    const CoralCalibration calibration =
        FitCoral(rows_, predictor_, {.what = what, .without = network});
    for (const PublishedLatency& row : rows_) {
      if (UseOf(row, predictor_) == RowUse::kFit && row.networks[0] == network) {
        errors->Add(network, RelativeError(row, calibration));
      }
    }
  }

  std::string Rows(RowUse use) const {
    const bool is_partly = use == RowUse::kPartly;
    std::string text = "| network | published for | preset | published ms |";
    text += is_partly ? " modelled device ms |\n|---|---|---|---|---|\n"
                      : " modelled ms | error |\n|---|---|---|---|---|---|\n";
    // By network, then as in the file.
    std::map<std::string, std::vector<const PublishedLatency*>> by_network;
    for (const PublishedLatency& row : rows_) {
      if (UseOf(row, predictor_) == use) by_network[Name(row)].push_back(&row);
    }
    for (const auto& [name, rows] : by_network) {
      for (const PublishedLatency* row : rows) {
        const double modelled = predictor_.Predict(*row, calibration_);
        text += Format("| %s%s | %s | %s | %.2f | %.2f |", name.c_str(), KindText(*row),
                       row->host.c_str(), row->link.c_str(), row->seconds * 1e3, modelled * 1e3);
        if (!is_partly) text += Format(" %+.0f %% |", 100 * (modelled / row->seconds - 1));
        text += "\n";
      }
    }
    return text;
  }

  std::string UnknownRows() const {
    std::string text = "| model | input | host | published ms |\n|---|---|---|---|\n";
    for (const PublishedLatency& row : rows_) {
      if (UseOf(row, predictor_) != RowUse::kUnknown) continue;
      text += Format("| %s | %s | %s | %.4g |\n", row.model.c_str(), row.input.c_str(),
                     row.host.c_str(), row.seconds * 1e3);
    }
    return text;
  }

  const std::vector<PublishedLatency> rows_;
  const CoralPredictor predictor_;
  const CoralCalibration calibration_ = CommittedCalibration();
};

// The page with the blocks in the places that bear their names.
Result<std::string> Fill(std::string page, const std::map<std::string, std::string>& blocks) {
  for (const auto& [name, text] : blocks) {
    const std::string begin = "<!-- BEGIN " + name + " -->\n";
    const std::string end = "<!-- END " + name + " -->";
    const size_t first = page.find(begin);
    const size_t last = page.find(end);
    if (first == std::string::npos || last == std::string::npos || last < first) {
      return InvalidArgument("the page has no place for '%s'", name.c_str());
    }
    page.replace(first + begin.size(), last - first - begin.size(), text);
  }
  return page;
}

Status Run(bool check, const std::string& table, const std::string& path) {
  ATOLL_ASSIGN_OR_RETURN(std::vector<PublishedLatency> rows, ReadPublishedLatencies(table));
  ATOLL_ASSIGN_OR_RETURN(CoralPredictor predictor, CoralPredictor::Create(rows));
  std::ifstream file(path);
  if (!file) return NotFound("cannot read '%s'", path.c_str());
  const std::string old{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const Page page(std::move(rows), std::move(predictor));
  ATOLL_ASSIGN_OR_RETURN(const std::string text, Fill(old, page.Blocks()));
  if (text == old) return Status();
  if (check) {
    return InvalidArgument("'%s' is not up to date; run fidelity %s %s", path.c_str(),
                           table.c_str(), path.c_str());
  }
  std::ofstream out(path);
  out << text;
  return out.flush() ? Status() : ResourceExhausted("cannot write '%s'", path.c_str());
}

}  // namespace
}  // namespace atollrt

int main(int argc, char** argv) {
  const bool check = argc == 4 && std::strcmp(argv[1], "--check") == 0;
  if (argc != 3 && !check) {
    std::fprintf(stderr, "usage: fidelity [--check] coral_latencies.csv fidelity.md\n");
    return 2;
  }
  const atollrt::Status status = atollrt::Run(check, argv[argc - 2], argv[argc - 1]);
  if (!status.ok()) std::fprintf(stderr, "fidelity: %s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
