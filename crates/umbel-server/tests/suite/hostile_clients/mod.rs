//! What clients do that want to harm a server, or are broken: each attack is answered or ended,
//! others are served meanwhile, and neither memory nor tasks stay behind. They run one at a time.

mod broken;
mod floods;
mod messages;
mod raw;
mod slow;
mod swollen;
mod target;
