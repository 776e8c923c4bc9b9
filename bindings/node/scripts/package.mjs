// Makes build/ballast-VERSION.tgz, which contains the addon of this platform with the libraries that it needs, and the sources from
// which `npm install` builds it where that addon does not load. Needs patchelf and strip.

import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, cpSync, existsSync, mkdirSync, readdirSync, readFileSync, realpathSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { buildInClone } from './install.mjs';

const own = fileURLToPath(new URL('..', import.meta.url));
const root = join(own, '../..');
const build = join(root, 'build/release');
const stage = join(root, 'build/npm');

/** Libraries that every Linux with glibc and a Node has, or that are loaded only for Parquet. */
const FROM_SYSTEM = /^(linux-vdso|ld-linux.*|libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+|libarrow|libparquet)\.so/;

function output(program, ...given) {
  return execFileSync(program, given, { encoding: 'utf8' });
}

/** The names of the libraries that a file needs, and their paths. */
function librariesOf(file) {
  const lines = output('ldd', file).split('\n').map((line) => /^\s*(\S+) => (\S+)/.exec(line)).filter((match) => match !== null);
  return lines.map(([, name, path]) => ({ name, path })).filter(({ name }) => !FROM_SYSTEM.test(name));
}

/** A name that no other package uses: the loader would take a library with the same name that another addon has loaded. */
const bundledName = (name) => name.replace(/\.so/, '-ballast.so');

function bundle(folder) {
  mkdirSync(folder, { recursive: true });
  const files = [join(build, 'node/ballast.node'), join(build, 'libballast_parquet.so')].filter((file) => existsSync(file));
  const libraries = new Map(files.flatMap(librariesOf).map(({ name, path }) => [name, path]));
  for (const [name, path] of libraries) {
    if (path === 'not') throw new Error(`${name}, which the addon needs, is not installed`);
    const to = join(folder, bundledName(name));
    copyFileSync(realpathSync(path), to);
    output('patchelf', '--set-soname', bundledName(name), to);
    copyLicense(path, name, join(folder, 'licenses'));
  }
  for (const file of files) copyFileSync(file, join(folder, basename(file)));
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const file = join(folder, entry.name);
    chmodSync(file, 0o755);
    output('strip', '--strip-unneeded', file);
    // One change at a time: patchelf 0.14 corrupts names if it makes two.
    output('patchelf', '--set-rpath', '$ORIGIN', file);
    for (const name of libraries.keys()) output('patchelf', '--replace-needed', name, bundledName(name), file);
  }
  for (const { name, path } of files.flatMap((file) => librariesOf(join(folder, basename(file))))) {
    if (!path.startsWith(folder)) throw new Error(`the addon loads ${name} from ${path}, not from the package`);
  }
}

function copyLicense(path, name, folder) {
  let license;
  try {
    license = `/usr/share/doc/${output('dpkg', '-S', realpathSync(path)).split(':')[0]}/copyright`;
  } catch (error) {
    throw new Error(`no license of ${name} found: ${path} is not from a Debian package`, { cause: error });
  }
  mkdirSync(folder, { recursive: true });
  copyFileSync(license, join(folder, `${name.replace(/\.so.*/, '')}.txt`));
}

function copySources(folder) {
  const filter = (path) => !/_test\.(cc|h)$/.test(path);
  for (const path of ['CMakeLists.txt', 'cmake', 'include', 'src', 'bindings/node/CMakeLists.txt', 'bindings/node/src']) {
    cpSync(join(root, path), join(folder, path), { recursive: true, filter });
  }
  const headers = join(folder, 'headers');
  cpSync(join(own, 'node_modules/node-addon-api'), join(headers, 'node-addon-api'), {
    recursive: true, filter: (path) => statSync(path).isDirectory() ? !/node-addon-api\/./.test(path) : /(\.h|LICENSE\.md)$/.test(path),
  });
  cpSync(join(own, 'node_modules/node-api-headers/include'), join(headers, 'node-api-headers/include'), { recursive: true });
  copyFileSync(join(own, 'node_modules/node-api-headers/LICENSE'), join(headers, 'node-api-headers/LICENSE'));
}

function writeManifest() {
  const { devDependencies, overrides, scripts, ...manifest } = JSON.parse(readFileSync(join(own, 'package.json'), 'utf8'));
  writeFileSync(join(stage, 'package.json'), `${JSON.stringify({ ...manifest, scripts: { install: scripts.install } }, null, 2)}\n`);
}

/** The newest version of a symbol that the files need, such as GLIBC_2.36. */
function newest(prefix, folder) {
  const versions = readdirSync(folder).filter((name) => /\.(node|so)/.test(name)).flatMap((name) =>
    [...output('readelf', '--wide', '--version-info', join(folder, name)).matchAll(new RegExp(`${prefix}_(\\d[\\d.]*)`, 'g'))].map(([, version]) => version));
  return versions.sort((a, b) => a.localeCompare(b, 'en', { numeric: true })).at(-1);
}

buildInClone();
rmSync(stage, { recursive: true, force: true });
const prebuilt = join(stage, 'prebuilds', `${process.platform}-${process.arch}`);
bundle(prebuilt);
copySources(join(stage, 'source'));
for (const path of ['dist', 'index.mjs', 'index.d.mts', 'README.md', 'scripts/install.mjs']) cpSync(join(own, path), join(stage, path), { recursive: true });
copyFileSync(join(root, 'LICENSE'), join(stage, 'LICENSE'));
writeManifest();
const [{ filename, size, unpackedSize, entryCount }] = JSON.parse(output('npm', 'pack', stage, '--json', '--ignore-scripts', '--pack-destination', join(root, 'build')));
const megabytes = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;
console.log(`build/${filename}: ${megabytes(size)}, unpacked ${megabytes(unpackedSize)} in ${entryCount} files`);
console.log(`needs glibc ${newest('GLIBC', prebuilt)} and libstdc++ with GLIBCXX_${newest('GLIBCXX', prebuilt)}`);
