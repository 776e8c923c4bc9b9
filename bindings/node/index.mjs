// Gives `import` the same objects as `require`.
export * from './dist/index.js';
