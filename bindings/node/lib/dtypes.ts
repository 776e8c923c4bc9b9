// The dtypes of SafeTensors and their typed arrays.

import { native } from './native';

function floats(dtype: string, codes: Uint8Array | Uint16Array): Float32Array<ArrayBuffer> {
  if (!Object.hasOwn(DTYPES, dtype)) throw new TypeError('toFloat32() must be called on an array with a dtype, such as an F8E4M3Array');
  const values = new Float32Array(codes.length);
  native.toFloat32(dtype, new Uint8Array(codes.buffer, codes.byteOffset, codes.byteLength), values);
  return values;
}

/** The bits of F16 values. */
export class F16Array extends Uint16Array {
  get dtype(): 'F16' {
    return 'F16';
  }

  /** Convert a copy to float32. */
  toFloat32(): Float32Array<ArrayBuffer> {
    return floats(this.dtype, this);
  }
}

/** The bits of BF16 values. */
export class BF16Array extends Uint16Array {
  get dtype(): 'BF16' {
    return 'BF16';
  }

  /** Convert a copy to float32. */
  toFloat32(): Float32Array<ArrayBuffer> {
    return floats(this.dtype, this);
  }
}

/** The bits of F8 values. Each kind of F8 has its own class. */
export abstract class F8Array extends Uint8Array {
  abstract get dtype(): 'F8_E5M2' | 'F8_E4M3' | 'F8_E8M0' | 'F8_E4M3FNUZ' | 'F8_E5M2FNUZ';

  /** Convert a copy to float32. */
  toFloat32(): Float32Array<ArrayBuffer> {
    return floats(this.dtype, this);
  }
}

export class F8E5M2Array extends F8Array {
  get dtype(): 'F8_E5M2' {
    return 'F8_E5M2';
  }
}

export class F8E4M3Array extends F8Array {
  get dtype(): 'F8_E4M3' {
    return 'F8_E4M3';
  }
}

export class F8E8M0Array extends F8Array {
  get dtype(): 'F8_E8M0' {
    return 'F8_E8M0';
  }
}

export class F8E4M3FnuzArray extends F8Array {
  get dtype(): 'F8_E4M3FNUZ' {
    return 'F8_E4M3FNUZ';
  }
}

export class F8E5M2FnuzArray extends F8Array {
  get dtype(): 'F8_E5M2FNUZ' {
    return 'F8_E5M2FNUZ';
  }
}

/** An array whose buffer is not a SharedArrayBuffer. */
type Own<A> = A & { readonly buffer: ArrayBuffer };

/** The array type of each dtype. C64 is pairs of numbers; F4 and F6 are the packed bytes. */
export interface Arrays {
  BOOL: Uint8Array<ArrayBuffer>;
  F4: Uint8Array<ArrayBuffer>;
  F6_E2M3: Uint8Array<ArrayBuffer>;
  F6_E3M2: Uint8Array<ArrayBuffer>;
  U8: Uint8Array<ArrayBuffer>;
  I8: Int8Array<ArrayBuffer>;
  F8_E5M2: Own<F8E5M2Array>;
  F8_E4M3: Own<F8E4M3Array>;
  F8_E8M0: Own<F8E8M0Array>;
  F8_E4M3FNUZ: Own<F8E4M3FnuzArray>;
  F8_E5M2FNUZ: Own<F8E5M2FnuzArray>;
  I16: Int16Array<ArrayBuffer>;
  U16: Uint16Array<ArrayBuffer>;
  F16: Own<F16Array>;
  BF16: Own<BF16Array>;
  I32: Int32Array<ArrayBuffer>;
  U32: Uint32Array<ArrayBuffer>;
  F32: Float32Array<ArrayBuffer>;
  C64: Float32Array<ArrayBuffer>;
  F64: Float64Array<ArrayBuffer>;
  I64: BigInt64Array<ArrayBuffer>;
  U64: BigUint64Array<ArrayBuffer>;
}

/** A dtype as SafeTensors spells it. */
export type DType = keyof Arrays;
export type TensorArray = Arrays[DType];

type ArrayClass = new (buffer: ArrayBuffer) => ArrayBufferView;

/** Bits per value, and the array type. */
const DTYPES: Record<DType, [bits: number, array: ArrayClass]> = {
  BOOL: [8, Uint8Array],
  F4: [4, Uint8Array],
  F6_E2M3: [6, Uint8Array],
  F6_E3M2: [6, Uint8Array],
  U8: [8, Uint8Array],
  I8: [8, Int8Array],
  F8_E5M2: [8, F8E5M2Array],
  F8_E4M3: [8, F8E4M3Array],
  F8_E8M0: [8, F8E8M0Array],
  F8_E4M3FNUZ: [8, F8E4M3FnuzArray],
  F8_E5M2FNUZ: [8, F8E5M2FnuzArray],
  I16: [16, Int16Array],
  U16: [16, Uint16Array],
  F16: [16, F16Array],
  BF16: [16, BF16Array],
  I32: [32, Int32Array],
  U32: [32, Uint32Array],
  F32: [32, Float32Array],
  C64: [64, Float32Array],
  F64: [64, Float64Array],
  I64: [64, BigInt64Array],
  U64: [64, BigUint64Array],
};

export const DTYPE_NAMES = Object.keys(DTYPES) as DType[];

export function bitsOf(dtype: DType): number {
  return DTYPES[dtype][0];
}

export function arrayOver<D extends DType>(dtype: D, buffer: ArrayBuffer): Arrays[D] {
  return new DTYPES[dtype][1](buffer) as unknown as Arrays[D];
}

/** The dtype of a name such as "bf16" or "BF16"; undefined if there is none. */
export function parseDType(name: string): DType | undefined {
  const upper = name.toUpperCase();
  return Object.hasOwn(DTYPES, upper) ? (upper as DType) : undefined;
}

const PLAIN: Record<string, DType> = {
  Int8Array: 'I8',
  Uint8Array: 'U8',
  Uint8ClampedArray: 'U8',
  Int16Array: 'I16',
  Uint16Array: 'U16',
  Float16Array: 'F16',
  Int32Array: 'I32',
  Uint32Array: 'U32',
  Float32Array: 'F32',
  Float64Array: 'F64',
  BigInt64Array: 'I64',
  BigUint64Array: 'U64',
};

/** The dtype of a typed array by its class; undefined for a DataView. */
export function dtypeOfArray(array: ArrayBufferView): DType | undefined {
  if (array instanceof F16Array || array instanceof BF16Array || array instanceof F8Array) return array.dtype;
  return PLAIN[(array as Uint8Array)[Symbol.toStringTag]];
}

/** Whether an array may be saved as a dtype: its own, or one whose bits it can contain. */
export function holds(array: ArrayBufferView, dtype: DType): boolean {
  const own = dtypeOfArray(array);
  if (own === dtype || own === undefined || own === 'U8') return true;
  if (own === 'U16') return dtype === 'F16' || dtype === 'BF16';
  return own === 'F32' && dtype === 'C64';
}
