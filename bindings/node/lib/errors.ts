/** The base class of all errors. The message is one line that names the file, the tensor and the two values that disagree. */
export class BallastError extends Error {
  /** For programs: `ERR_BALLAST_…`. */
  readonly code: string = 'ERR_BALLAST';
  /** The system error, one of `os.constants.errno`, if there was one. */
  readonly errno?: number;

  constructor(message: string, errno?: number) {
    super(message);
    if (errno) this.errno = errno;
  }
}

/** Reading failed. */
export class ReadError extends BallastError {
  override readonly code = 'ERR_BALLAST_READ';
}

/** Writing the output failed. */
export class WriteError extends BallastError {
  override readonly code = 'ERR_BALLAST_WRITE';
}

/** A file contradicts itself, its format or its config. */
export class CorruptError extends BallastError {
  override readonly code: string = 'ERR_BALLAST_CORRUPT';
}

/** The file is valid, but Ballast cannot do what was requested. */
export class UnsupportedError extends BallastError {
  override readonly code = 'ERR_BALLAST_UNSUPPORTED';
}

/** The file does not exist. */
export class MissingError extends BallastError {
  override readonly code = 'ERR_BALLAST_NOT_FOUND';
}

/** The model has no such tensor. */
export class TensorNotFoundError extends BallastError {
  override readonly code = 'ERR_BALLAST_TENSOR_NOT_FOUND';
}

/** A setting or an argument is wrong. */
export class ArgumentError extends BallastError {
  override readonly code = 'ERR_BALLAST_ARGUMENT';
}

/** With `failFast`, a layer is below `minAccuracy`. */
export class BelowMinimumError extends BallastError {
  override readonly code = 'ERR_BALLAST_BELOW_MINIMUM';
}

/** A progress callback returned false. */
export class CancelledError extends BallastError {
  override readonly code = 'ERR_BALLAST_CANCELLED';
}

/** The model was closed. */
export class ClosedError extends BallastError {
  override readonly code = 'ERR_BALLAST_CLOSED';
}

export interface Misshaped {
  name: string;
  expected: number[];
  found: number[];
}

/** The tensors of a model are not those that its config implies. */
export class ArchitectureError extends CorruptError {
  override readonly code = 'ERR_BALLAST_ARCHITECTURE';
  readonly missing: string[];
  readonly unexpected: string[];
  readonly misshaped: Misshaped[];

  constructor(message: string, found: { missing?: string[]; unexpected?: string[]; misshaped?: Misshaped[] } = {}) {
    super(message);
    this.missing = found.missing ?? [];
    this.unexpected = found.unexpected ?? [];
    this.misshaped = found.misshaped ?? [];
  }
}

const CLASSES: Record<string, new (message: string, errno?: number) => BallastError> = {
  ArgumentError, BelowMinimumError, CancelledError, ClosedError, CorruptError, MissingError, ReadError, UnsupportedError, WriteError,
};

// Not enumerable, as for built-in errors, so that printing an error does not repeat the name.
for (const errorClass of [BallastError, ...Object.values(CLASSES), TensorNotFoundError, ArchitectureError]) {
  Object.defineProperty(errorClass.prototype, 'name', { value: errorClass.name, configurable: true, writable: true });
}

const ENOENT = 2;

/** Makes the error that the addon reports. */
export function errorOf(kind: string, message: string, errno: number): BallastError {
  const errorClass = CLASSES[kind] ?? BallastError;
  return new errorClass(message, errorClass === MissingError ? errno || ENOENT : errno);
}
