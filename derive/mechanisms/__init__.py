"""The general theorems that turn a model into equations, one mechanism per file."""
