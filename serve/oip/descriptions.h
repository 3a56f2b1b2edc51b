// SPDX-License-Identifier: Apache-2.0
//
// What the server tells of its models, as JSON: the protocol's metadata and statistics, Triton's
// configuration and index, and the state that the page shows. Functions of what the InferenceServer
// says; none fails.
#pragma once

#include <string>
#include <vector>

#include "serve/inference/inference_server.h"

namespace atollserve {

std::string DescribeModel(const ModelInfo& model);
// What the model's own file of configuration says, where that is JSON, and what is so whatever it
// says.
std::string DescribeConfiguration(const ModelInfo& model);
std::string DescribeStatistics(const std::vector<ModelStatistics>& all);
std::string DescribeIndex(const std::vector<ModelEntry>& index, bool ready_only);
// Everything at once; `name` is the server's.
std::string DescribeState(const InferenceServer& inference, const std::string& name);

}  // namespace atollserve
