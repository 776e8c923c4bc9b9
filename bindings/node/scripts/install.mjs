// Run by `npm install`. Does nothing if the package has an addon that loads here; otherwise builds the addon with CMake. In a clone
// it always builds, in build/release, and compiles the TypeScript too.

import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** What Debian 12 needs to build the addon, except Node itself. */
export const DEBIAN_PACKAGES = [
  'g++', 'cmake', 'ninja-build', 'pkg-config', 'libfmt-dev', 'libhwy-dev', 'libsimdjson-dev', 'libyaml-cpp-dev', 'libre2-dev', 'libxxhash-dev',
  'libssl-dev', 'nlohmann-json3-dev', 'libcurl4-openssl-dev', 'libpugixml-dev',
];

const require = createRequire(import.meta.url);
const own = fileURLToPath(new URL('..', import.meta.url));
const isClone = existsSync(join(own, 'CMakeLists.txt'));

function run(cwd, program, ...given) {
  console.log(`> ${[program, ...given].join(' ')}`);
  execFileSync(program, given, { cwd, stdio: 'inherit' });
}

/** Why the prebuilt addon does not load, or undefined if it does. */
function prebuiltFailure() {
  const addon = join(own, 'prebuilds', `${process.platform}-${process.arch}`, 'ballast.node');
  if (!existsSync(addon)) return `the package has no addon for ${process.platform}-${process.arch}`;
  try {
    require(addon);
    return undefined;
  } catch (error) {
    return error.message.split('\n')[0];
  }
}

/** Builds the addon and the TypeScript of a clone. */
export function buildInClone() {
  const root = join(own, '../..');
  const build = join(root, 'build/release');
  // An existing build keeps its settings. The Python package needs more than this script can expect, so it is off by default.
  if (existsSync(join(build, 'CMakeCache.txt'))) run(root, 'cmake', '-DBALLAST_NODE=ON', build);
  else run(root, 'cmake', '--preset', 'release', '-DBALLAST_PYTHON=OFF');
  run(root, 'cmake', '--build', build, '--target', 'ballast_node');
  run(own, process.execPath, require.resolve('typescript/bin/tsc'), '-p', own);
}

function buildInPackage() {
  const source = join(own, 'source');
  const build = join(source, 'build/release');
  const options = {
    CMAKE_BUILD_TYPE: 'Release', CMAKE_UNITY_BUILD: 'ON', BALLAST_NODE: 'ON', BALLAST_NODE_HEADERS: join(source, 'headers'),
    BALLAST_CLI: 'OFF', BALLAST_TESTS: 'OFF', BALLAST_BENCH: 'OFF',
  };
  const hasNinja = (process.env.PATH ?? '').split(':').some((folder) => existsSync(join(folder, 'ninja')));
  const given = Object.entries(options).map(([name, value]) => `-D${name}=${value}`);
  run(own, 'cmake', '-S', source, '-B', build, ...(hasNinja ? ['-G', 'Ninja'] : []), ...given);
  run(own, 'cmake', '--build', build, '--target', 'ballast_node', '--parallel');
}

function install() {
  if (!isClone) {
    const failure = prebuiltFailure();
    if (failure === undefined) return;
    console.log(`ballast: the prebuilt addon does not load: ${failure}; building it from source`);
  }
  try {
    if (isClone) buildInClone();
    else buildInPackage();
  } catch (error) {
    const fix = isClone ? 'run scripts/setup' : `on Debian 12, run: apt-get install ${DEBIAN_PACKAGES.join(' ')}`;
    console.error(`ballast: cannot build the addon: ${error.message}; ${fix}`);
    process.exit(1);
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) install();
