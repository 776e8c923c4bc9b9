// The same objects for `import` as for `require`.
export * from './dist/index.js';
