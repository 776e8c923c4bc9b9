/** The base of all. Its message is one line that names the file, the tensor and the two numbers that disagree. */
export class BallastError extends Error {
  /** What happened, for programs: `ERR_BALLAST_…`. */
  readonly code: string = 'ERR_BALLAST';
  /** The system's own number, one of `os.constants.errno`, where it gave the reason. */
  readonly errno?: number;

  constructor(message: string, errno?: number) {
    super(message);
    if (errno) this.errno = errno;
  }
}

/** The system refused a read or broke it off. */
export class ReadError extends BallastError {
  override readonly code = 'ERR_BALLAST_READ';
}

/** The output could not be written. */
export class WriteError extends BallastError {
  override readonly code = 'ERR_BALLAST_WRITE';
}

/** The bytes contradict themselves, their format or each other. */
export class CorruptError extends BallastError {
  override readonly code: string = 'ERR_BALLAST_CORRUPT';
}

/** Well formed, but nothing here can do what was asked of it. */
export class UnsupportedError extends BallastError {
  override readonly code = 'ERR_BALLAST_UNSUPPORTED';
}

/** No such file. */
export class MissingError extends BallastError {
  override readonly code = 'ERR_BALLAST_NOT_FOUND';
}

/** No such tensor. */
export class TensorNotFoundError extends BallastError {
  override readonly code = 'ERR_BALLAST_TENSOR_NOT_FOUND';
}

/** The caller's mistake. */
export class ArgumentError extends BallastError {
  override readonly code = 'ERR_BALLAST_ARGUMENT';
}

/** Done, and found worse than `minAccuracy` asks, with `failFast`. */
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

/** A model's tensors are not those that its config implies. */
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

// Not enumerable, as those of built-in errors: printing shows the code and what else there is to know.
for (const errorClass of [BallastError, ...Object.values(CLASSES), TensorNotFoundError, ArchitectureError]) {
  Object.defineProperty(errorClass.prototype, 'name', { value: errorClass.name, configurable: true, writable: true });
}

const ENOENT = 2;

/** The error that the addon speaks of. */
export function errorOf(kind: string, message: string, errno: number): BallastError {
  const errorClass = CLASSES[kind] ?? BallastError;
  return new errorClass(message, errorClass === MissingError ? errno || ENOENT : errno);
}
