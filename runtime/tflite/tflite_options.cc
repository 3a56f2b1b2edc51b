// SPDX-License-Identifier: Apache-2.0
#include "runtime/tflite/tflite_options.h"

#include <cmath>

#include "tflite_generated.h"

namespace atollrt {
namespace {

Status Read(tflite::Activation stored, Activation* out) {
  if (stored < tflite::Activation::MIN || stored > tflite::Activation::MAX) {
    return CorruptModel("fused activation %d does not exist", static_cast<int>(stored));
  }
  *out = static_cast<Activation>(stored);
  return Status();
}

Status Read(tflite::Padding stored, Padding* out) {
  if (stored < tflite::Padding::MIN || stored > tflite::Padding::MAX) {
    return CorruptModel("padding %d does not exist", static_cast<int>(stored));
  }
  *out = static_cast<Padding>(stored);
  return Status();
}

Status Read(tflite::MirrorPadMode stored, MirrorPadMode* out) {
  if (stored < tflite::MirrorPadMode::MIN || stored > tflite::MirrorPadMode::MAX) {
    return CorruptModel("mirror mode %d does not exist", static_cast<int>(stored));
  }
  *out = static_cast<MirrorPadMode>(stored);
  return Status();
}

// One overload per stored table. Fields keep the names of graph.h.

// Convolution and depthwise convolution name their fields alike.
template <typename Stored>
Status ReadFilter(const Stored& stored, Conv2DOptions* out) {
  out->stride_h = stored.stride_h();
  out->stride_w = stored.stride_w();
  out->dilation_h = stored.dilation_h_factor();
  out->dilation_w = stored.dilation_w_factor();
  ATOLL_RETURN_IF_ERROR(Read(stored.padding(), &out->padding));
  return Read(stored.fused_activation_function(), &out->activation);
}

Status Read(const tflite::Conv2DOptions& stored, Conv2DOptions* out) {
  return ReadFilter(stored, out);
}

Status Read(const tflite::DepthwiseConv2DOptions& stored, Conv2DOptions* out) {
  return ReadFilter(stored, out);
}

Status Read(const tflite::TransposeConvOptions& stored, Conv2DOptions* out) {
  out->stride_h = stored.stride_h();
  out->stride_w = stored.stride_w();
  ATOLL_RETURN_IF_ERROR(Read(stored.padding(), &out->padding));
  return Read(stored.fused_activation_function(), &out->activation);
}

Status Read(const tflite::Pool2DOptions& stored, Pool2DOptions* out) {
  out->stride_h = stored.stride_h();
  out->stride_w = stored.stride_w();
  out->filter_h = stored.filter_height();
  out->filter_w = stored.filter_width();
  ATOLL_RETURN_IF_ERROR(Read(stored.padding(), &out->padding));
  return Read(stored.fused_activation_function(), &out->activation);
}

Status Read(const tflite::FullyConnectedOptions& stored, FullyConnectedOptions* out) {
  if (stored.weights_format() != tflite::WeightsFormat::Default) {
    return Unsupported("weights format %d; only the default one is read",
                       static_cast<int>(stored.weights_format()));
  }
  out->keep_num_dims = stored.keep_num_dims();
  return Read(stored.fused_activation_function(), &out->activation);
}

Status Read(const tflite::SoftmaxOptions& stored, SoftmaxOptions* out) {
  out->beta = stored.beta();
  return std::isfinite(out->beta) ? Status() : CorruptModel("beta is not finite");
}

Status Read(const tflite::ConcatenationOptions& stored, AxisOptions* out) {
  out->axis = stored.axis();
  return Read(stored.fused_activation_function(), &out->activation);
}

Status Read(const tflite::GatherOptions& stored, AxisOptions* out) {
  out->axis = stored.axis();
  out->count = stored.batch_dims();
  return Status();
}

Status Read(const tflite::PackOptions& stored, AxisOptions* out) {
  out->axis = stored.axis();
  out->count = stored.values_count();
  return Status();
}

Status Read(const tflite::UnpackOptions& stored, AxisOptions* out) {
  out->axis = stored.axis();
  out->count = stored.num();
  return Status();
}

Status Read(const tflite::AddOptions& stored, ElementwiseOptions* out) {
  out->pot_scale_int16 = stored.pot_scale_int16();
  return Read(stored.fused_activation_function(), &out->activation);
}

Status Read(const tflite::SubOptions& stored, ElementwiseOptions* out) {
  out->pot_scale_int16 = stored.pot_scale_int16();
  return Read(stored.fused_activation_function(), &out->activation);
}

Status Read(const tflite::MulOptions& stored, ElementwiseOptions* out) {
  return Read(stored.fused_activation_function(), &out->activation);
}

Status Read(const tflite::DivOptions& stored, ElementwiseOptions* out) {
  return Read(stored.fused_activation_function(), &out->activation);
}

Status Read(const tflite::L2NormOptions& stored, ElementwiseOptions* out) {
  return Read(stored.fused_activation_function(), &out->activation);
}

Status Read(const char* name, const flatbuffers::Vector<int32_t>* stored,
            std::vector<int32_t>* out) {
  constexpr uint32_t kMaxListedCount = 64;  // more than any tensor has dimensions
  if (stored == nullptr) return Status();
  if (stored->size() > kMaxListedCount) {
    return CorruptModel("%s has %u numbers, at most %u make sense", name, stored->size(),
                        kMaxListedCount);
  }
  out->assign(stored->begin(), stored->end());
  return Status();
}

Status Read(const tflite::ReshapeOptions& stored, ReshapeOptions* out) {
  return Read("new_shape", stored.new_shape(), &out->new_shape);
}

Status Read(const tflite::ReducerOptions& stored, ReducerOptions* out) {
  out->keep_dims = stored.keep_dims();
  return Status();
}

Status Read(const tflite::SqueezeOptions& stored, SqueezeOptions* out) {
  return Read("squeeze_dims", stored.squeeze_dims(), &out->dims);
}

Status Read(const tflite::ResizeBilinearOptions& stored, ResizeOptions* out) {
  *out = {stored.align_corners(), stored.half_pixel_centers()};
  return Status();
}

Status Read(const tflite::ResizeNearestNeighborOptions& stored, ResizeOptions* out) {
  *out = {stored.align_corners(), stored.half_pixel_centers()};
  return Status();
}

Status Read(const tflite::SpaceToDepthOptions& stored, BlockOptions* out) {
  out->block_size = stored.block_size();
  return Status();
}

Status Read(const tflite::DepthToSpaceOptions& stored, BlockOptions* out) {
  out->block_size = stored.block_size();
  return Status();
}

Status Read(const tflite::StridedSliceOptions& stored, StridedSliceOptions* out) {
  out->begin_mask = stored.begin_mask();
  out->end_mask = stored.end_mask();
  out->ellipsis_mask = stored.ellipsis_mask();
  out->new_axis_mask = stored.new_axis_mask();
  out->shrink_axis_mask = stored.shrink_axis_mask();
  out->offset = stored.offset();
  return Status();
}

Status Read(const tflite::SplitOptions& stored, SplitOptions* out) {
  out->num_splits = stored.num_splits();
  return Status();
}

Status Read(const tflite::SplitVOptions& stored, SplitOptions* out) {
  out->num_splits = stored.num_splits();
  return Status();
}

Status Read(const tflite::LeakyReluOptions& stored, LeakyReluOptions* out) {
  out->alpha = stored.alpha();
  return std::isfinite(out->alpha) ? Status() : CorruptModel("alpha is not finite");
}

Status Read(const tflite::MirrorPadOptions& stored, MirrorPadOptions* out) {
  return Read(stored.mode(), &out->mode);
}

Status Read(const tflite::BatchMatMulOptions& stored, BatchMatMulOptions* out) {
  *out = {stored.adj_x(), stored.adj_y()};
  return Status();
}

Status Read(const tflite::UnidirectionalSequenceLSTMOptions& stored, LstmOptions* out) {
  out->cell_clip = stored.cell_clip();
  out->projection_clip = stored.proj_clip();
  out->time_major = stored.time_major();
  if (!std::isfinite(out->cell_clip) || !std::isfinite(out->projection_clip)) {
    return CorruptModel("a clip is not finite");
  }
  return Read(stored.fused_activation_function(), &out->activation);
}

Status Read(const tflite::SVDFOptions& stored, SvdfOptions* out) {
  out->rank = stored.rank();
  return Read(stored.fused_activation_function(), &out->activation);
}

Status Read(const tflite::CallOnceOptions& stored, CallOnceOptions* out) {
  out->subgraph = stored.init_subgraph_index();
  return Status();
}

Status Read(const tflite::VarHandleOptions& stored, VarHandleOptions* out) {
  if (stored.container() != nullptr) out->container = stored.container()->str();
  if (stored.shared_name() != nullptr) out->shared_name = stored.shared_name()->str();
  return Status();
}

enum class Table { kOptional, kRequired };

// Sets node->options to Options, read from `stored` if it is there.
template <typename Options, typename Stored>
Status ReadInto(const Stored* stored, Table table, Node* node) {
  Options options;
  if (stored != nullptr) {
    ATOLL_RETURN_IF_ERROR(Read(*stored, &options));
  } else if (table == Table::kRequired) {
    return CorruptModel("its options are missing or of another operator");
  }
  node->options = options;
  return Status();
}

}  // namespace

#define ATOLL_READ(Stored, Options, table) \
  return ReadInto<Options>(op.builtin_options_as_##Stored(), table, node)

Status ReadTfliteOptions(const tflite::Operator& op, Node* node) {
  switch (node->type) {
    case OpType::kCONV_2D:
      ATOLL_READ(Conv2DOptions, Conv2DOptions, Table::kRequired);
    case OpType::kDEPTHWISE_CONV_2D:
      ATOLL_READ(DepthwiseConv2DOptions, Conv2DOptions, Table::kRequired);
    case OpType::kTRANSPOSE_CONV:
      ATOLL_READ(TransposeConvOptions, Conv2DOptions, Table::kRequired);
    case OpType::kAVERAGE_POOL_2D:
    case OpType::kMAX_POOL_2D:
      ATOLL_READ(Pool2DOptions, Pool2DOptions, Table::kRequired);
    case OpType::kFULLY_CONNECTED:
      ATOLL_READ(FullyConnectedOptions, FullyConnectedOptions, Table::kOptional);
    case OpType::kSOFTMAX:
      ATOLL_READ(SoftmaxOptions, SoftmaxOptions, Table::kOptional);
    case OpType::kCONCATENATION:
      ATOLL_READ(ConcatenationOptions, AxisOptions, Table::kOptional);
    case OpType::kGATHER:
      ATOLL_READ(GatherOptions, AxisOptions, Table::kOptional);
    case OpType::kPACK:
      ATOLL_READ(PackOptions, AxisOptions, Table::kRequired);
    case OpType::kUNPACK:
      ATOLL_READ(UnpackOptions, AxisOptions, Table::kRequired);
    case OpType::kADD:
      ATOLL_READ(AddOptions, ElementwiseOptions, Table::kOptional);
    case OpType::kSUB:
      ATOLL_READ(SubOptions, ElementwiseOptions, Table::kOptional);
    case OpType::kMUL:
      ATOLL_READ(MulOptions, ElementwiseOptions, Table::kOptional);
    case OpType::kDIV:
      ATOLL_READ(DivOptions, ElementwiseOptions, Table::kOptional);
    case OpType::kL2_NORMALIZATION:
      ATOLL_READ(L2NormOptions, ElementwiseOptions, Table::kOptional);
    case OpType::kRESHAPE:
      ATOLL_READ(ReshapeOptions, ReshapeOptions, Table::kOptional);
    case OpType::kMEAN:
    case OpType::kSUM:
    case OpType::kREDUCE_MAX:
    case OpType::kREDUCE_MIN:
      ATOLL_READ(ReducerOptions, ReducerOptions, Table::kOptional);
    case OpType::kSQUEEZE:
      ATOLL_READ(SqueezeOptions, SqueezeOptions, Table::kOptional);
    case OpType::kRESIZE_BILINEAR:
      ATOLL_READ(ResizeBilinearOptions, ResizeOptions, Table::kOptional);
    case OpType::kRESIZE_NEAREST_NEIGHBOR:
      ATOLL_READ(ResizeNearestNeighborOptions, ResizeOptions, Table::kOptional);
    case OpType::kSPACE_TO_DEPTH:
      ATOLL_READ(SpaceToDepthOptions, BlockOptions, Table::kRequired);
    case OpType::kDEPTH_TO_SPACE:
      ATOLL_READ(DepthToSpaceOptions, BlockOptions, Table::kRequired);
    case OpType::kSTRIDED_SLICE:
      ATOLL_READ(StridedSliceOptions, StridedSliceOptions, Table::kOptional);
    case OpType::kSPLIT:
      ATOLL_READ(SplitOptions, SplitOptions, Table::kRequired);
    case OpType::kSPLIT_V:
      ATOLL_READ(SplitVOptions, SplitOptions, Table::kRequired);
    case OpType::kLEAKY_RELU:
      ATOLL_READ(LeakyReluOptions, LeakyReluOptions, Table::kOptional);
    case OpType::kMIRROR_PAD:
      ATOLL_READ(MirrorPadOptions, MirrorPadOptions, Table::kOptional);
    case OpType::kBATCH_MATMUL:
      ATOLL_READ(BatchMatMulOptions, BatchMatMulOptions, Table::kOptional);
    case OpType::kUNIDIRECTIONAL_SEQUENCE_LSTM:
      ATOLL_READ(UnidirectionalSequenceLSTMOptions, LstmOptions, Table::kRequired);
    case OpType::kSVDF:
      ATOLL_READ(SVDFOptions, SvdfOptions, Table::kRequired);
    case OpType::kCALL_ONCE:
      ATOLL_READ(CallOnceOptions, CallOnceOptions, Table::kRequired);
    case OpType::kVAR_HANDLE:
      ATOLL_READ(VarHandleOptions, VarHandleOptions, Table::kOptional);
    default:
      return Status();
  }
}

#undef ATOLL_READ

}  // namespace atollrt
