pub mod divisive;
