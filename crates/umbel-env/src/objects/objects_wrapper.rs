//! Macro for the methods of a wrapper of an object store that only call the wrapped store.

/// Writes methods of an [`Objects`](crate::Objects) that call the same method of the object store
/// in a field: `delegate_object_calls!(inner: location delete);` in its `impl` block.
#[macro_export]
macro_rules! delegate_object_calls {
    ($field:tt: $($method:ident)*) => { $($crate::delegate_object_calls!(@$method $field);)* };
    (@location $field:tt) => {
        fn location(&self) -> &str {
            self.$field.location()
        }
    };
    (@create $field:tt) => {
        fn create(
            &self,
            name: &$crate::ObjectName,
            bytes: &[u8],
        ) -> $crate::ObjectResult<$crate::Creation> {
            self.$field.create(name, bytes)
        }
    };
    (@create_concurrently $field:tt) => {
        fn create_concurrently(
            &self,
            requests: &[$crate::CreationRequest],
        ) -> ::std::vec::Vec<$crate::ObjectResult<$crate::Creation>> {
            self.$field.create_concurrently(requests)
        }
    };
    (@put $field:tt) => {
        fn put(
            &self,
            name: &$crate::ObjectName,
            source: &dyn $crate::ObjectSource,
        ) -> $crate::ObjectResult<()> {
            self.$field.put(name, source)
        }
    };
    (@read $field:tt) => {
        fn read(
            &self,
            name: &$crate::ObjectName,
            range: ::std::ops::Range<u64>,
        ) -> $crate::ObjectResult<::std::option::Option<$crate::ObjectBytes>> {
            self.$field.read(name, range)
        }
    };
    (@list $field:tt) => {
        fn list(
            &self,
            prefix: &str,
            after: ::std::option::Option<&str>,
            objects_max: usize,
        ) -> $crate::ObjectResult<$crate::ListPage> {
            self.$field.list(prefix, after, objects_max)
        }
    };
    (@delete $field:tt) => {
        fn delete(&self, name: &$crate::ObjectName) -> $crate::ObjectResult<()> {
            self.$field.delete(name)
        }
    };
    (@time_micros $field:tt) => {
        fn time_micros(
            &self,
            age_max: ::std::time::Duration,
        ) -> ::std::result::Result<::std::option::Option<u64>, $crate::ObjectError> {
            self.$field.time_micros(age_max)
        }
    };
}
