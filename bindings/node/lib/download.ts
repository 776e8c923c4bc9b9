import * as check from './arguments';
import { run } from './jobs';
import type { ModelPath } from './model';
import { native } from './native';
import { DIRECTORY_CHECKS, type DirectoryOptions, WORK_CHECKS, type WorkOptions } from './work';

export interface DownloadOptions extends WorkOptions, DirectoryOptions {
  /** Globs of the file names to download. Default: all. */
  include?: string[];
  /** Globs of the file names to leave out. */
  exclude?: string[];
  /** Flush the files to disk before returning. Default: true. */
  sync?: boolean;
  /** Write into a directory that has other files, which stay. Default: false. */
  force?: boolean;
}

export interface DownloadedFile {
  path: string;
  size: number;
  /** It was already complete. */
  alreadyComplete: boolean;
  /** The kind of checksum that was compared, or null if the server sent none. */
  checksum: 'sha256' | 'git' | null;
}

export interface DownloadReport {
  folder: string;
  files: DownloadedFile[];
  fetchedBytes: number;
}

/**
 * Download a file, or the files of a model: https://…, s3://bucket/folder or hf://org/repo[@revision][/file].
 *
 * An interrupted download resumes with the next call. Without a folder, a model of the Hugging Face hub goes to the hub's cache.
 */
export async function downloadModel(uri: string | URL, folder?: ModelPath | null, options?: DownloadOptions): Promise<DownloadReport> {
  const from = check.uri('uri', uri instanceof URL ? uri.href : uri);
  const to = folder === undefined || folder === null ? '' : check.path('folder', folder);
  const checks = { ...WORK_CHECKS, ...DIRECTORY_CHECKS, include: check.texts, exclude: check.texts, sync: check.flag, force: check.flag };
  const { progress, signal, include = [], exclude = [], sync = true, force = false, ...directory } = check.optionsOf(options, checks);
  return await run(progress, signal, (report) => native.download(from, to, { include, exclude, sync, force, ...directory }, report));
}
