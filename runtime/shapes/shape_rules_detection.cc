// SPDX-License-Identifier: Apache-2.0
//
// Shape rules of the operators that decode detections and poses.
#include "runtime/shapes/shape_rules.h"

namespace atollrt {

Status InferDetectionPostProcess(const Graph& graph, const Node& node,
                                 std::vector<Shape>* outputs) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {3, 3, 4}));
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[0], 3));
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[1], 3));
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[2], 2));
  const Shape& encodings = graph.Input(node, 0)->shape;
  const Shape& scores = graph.Input(node, 1)->shape;
  const Shape& anchors = graph.Input(node, 2)->shape;
  if (encodings[0] != 1 || scores[0] != 1 || encodings[1] != anchors[0] ||
      scores[1] != anchors[0] || encodings[2] < 4 || anchors[1] != 4) {
    return CorruptModel("encodings %s, scores %s and anchors %s do not fit together",
                        ShapeString(encodings).c_str(), ShapeString(scores).c_str(),
                        ShapeString(anchors).c_str());
  }
  const DetectionOptions& options = std::get<DetectionOptions>(node.options);
  if (scores[2] != options.num_classes && scores[2] - 1 != options.num_classes) {
    return CorruptModel("%d columns of scores for %d classes and at most one background", scores[2],
                        options.num_classes);
  }
  const int32_t entries = options.max_detections * options.max_classes_per_detection;
  *outputs = {{1, entries, 4}, {1, entries}, {1, entries}, {1}};
  return Status();
}

Status InferPosenetDecoder(const Graph& graph, const Node& node, std::vector<Shape>* outputs) {
  constexpr int32_t kKeypoints = 17;
  constexpr int32_t kEdges = 16;
  constexpr int32_t kMaskSize = 33;
  // Long offsets give masks.
  const size_t maps = graph.Input(node, 3) == nullptr ? 3 : 4;
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {3, 4, maps + 1}));
  // A y and an x per keypoint; the same per edge, forward and backward.
  constexpr int32_t kChannels[] = {kKeypoints, 2 * kKeypoints, 4 * kEdges, 2 * kKeypoints};
  for (size_t i = 0; i < maps; ++i) {
    ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[i], 4));
    const Shape& map = graph.Input(node, 0)->shape;
    const Shape& shape = graph.Input(node, i)->shape;
    if (shape != Shape{1, map[1], map[2], kChannels[i]}) {
      return CorruptModel("input %zu has shape %s, must be [1, %d, %d, %d]", i,
                          ShapeString(shape).c_str(), map[1], map[2], kChannels[i]);
    }
  }
  const int32_t poses = std::get<PosenetOptions>(node.options).max_detections;
  *outputs = {{1, poses, kKeypoints, 2}, {1, poses, kKeypoints}, {1, poses}, {1}};
  if (maps == 4) outputs->push_back({1, poses, kMaskSize, kMaskSize});
  return Status();
}

}  // namespace atollrt
