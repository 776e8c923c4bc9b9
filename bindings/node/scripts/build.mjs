// Builds the addon with the project's CMake, in build/release, and the TypeScript around it. `npm install` runs this.

import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../../../', import.meta.url));
const build = `${root}build/release`;

function run(program, ...given) {
  console.log(`> ${[program, ...given].join(' ')}`);
  execFileSync(program, given, { cwd: root, stdio: 'inherit' });
}

try {
  // What is configured already stays as it is, but for the addon. The Python package, which needs more, waits for scripts/build.
  if (existsSync(`${build}/CMakeCache.txt`)) run('cmake', '-DBALLAST_NODE=ON', build);
  else run('cmake', '--preset', 'release', '-DBALLAST_PYTHON=OFF');
  run('cmake', '--build', build, '--target', 'ballast_node');
  const compiler = createRequire(import.meta.url).resolve('typescript/bin/tsc');
  run(process.execPath, compiler, '-p', fileURLToPath(new URL('..', import.meta.url)));
} catch (error) {
  console.error(`ballast: the addon could not be built: ${error.message}; scripts/setup installs what that needs`);
  process.exit(1);
}
