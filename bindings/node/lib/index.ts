// Opens, checks, converts and quantizes model weights.

export {
  type Arrays,
  BF16Array,
  type DType,
  F16Array,
  F8Array,
  F8E4M3Array,
  F8E4M3FnuzArray,
  F8E5M2Array,
  F8E5M2FnuzArray,
  F8E8M0Array,
  type TensorArray,
} from './dtypes';
export { convertModel, type ConvertOptions, type ConvertReport } from './convert';
export { type DownloadedFile, downloadModel, type DownloadOptions, type DownloadReport } from './download';
export {
  ArchitectureError,
  ArgumentError,
  BallastError,
  BelowMinimumError,
  CancelledError,
  ClosedError,
  CorruptError,
  MissingError,
  type Misshaped,
  ReadError,
  TensorNotFoundError,
  UnsupportedError,
  WriteError,
} from './errors';
export {
  type AgainstReport,
  calibrateModel,
  type CalibrateOptions,
  type CalibrateReport,
  evaluateModel,
  type EvaluateOptions,
  type EvaluateReport,
} from './evaluate';
export {
  type Component,
  type Defect,
  diffModels,
  type DiffOptions,
  type DiffReport,
  type InspectedTensor,
  type InspectedWeight,
  inspectModel,
  type InspectOptions,
  type InspectReport,
  listComponents,
  type TensorDifference,
  type TensorStats,
  type Totals,
  type VerifiedFile,
  verifyModel,
  type VerifyOptions,
  type VerifyReport,
} from './examine';
export type { Progress, ProgressReport } from './jobs';
export {
  type Modality,
  Model,
  type ModelConfig,
  type LoadAllOptions,
  type ModelPath,
  openModel,
  type OpenOptions,
  type ReadOptions,
  type SliceOptions,
  type TensorInfo,
  type TensorValues,
} from './model';
export { LlamaModel, loadPretrained, type LoadOptions, MistralModel, PretrainedModel, Qwen2Model, Qwen3Model } from './pretrained';
export { saveFile, type SaveOptions, type TensorData, tensorOf, type Tensors } from './save';
export type { Slice } from './slices';
export {
  type CalibrationReport,
  dequantizeModel,
  type DequantizeOptions,
  type LayerReport,
  quantizeModel,
  type QuantizeOptions,
  type QuantizeReport,
  type QuantizeSettings,
  type SizeFitReport,
  validateModel,
  type ValidateOptions,
} from './quantize';
export type { TokenOptions, Tokens } from './tokens';
export type { ComponentReport, DirectoryOptions, Lora } from './work';
import { native } from './native';

export const version: string = native.version;
