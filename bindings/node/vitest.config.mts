import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    pool: 'forks', // process.chdir() is not for threads
    poolOptions: { forks: { execArgv: ['--expose-gc'] } },
    testTimeout: 60_000,
    server: { deps: { external: [/\/bindings\/node\/(dist|index)/] } }, // as Node loads it, not as vite would
  },
  resolve: { alias: { ballast: new URL('./index.mjs', import.meta.url).pathname } },
});
