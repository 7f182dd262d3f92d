//! libstackbeat.so
