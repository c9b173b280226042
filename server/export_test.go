package server

// Routes are the pattern and method of each route, and what it asks Authorize.
func (s *Server) Routes(each func(pattern, method string, action Action)) {
	for _, r := range s.routes {
		for name, m := range r.methods {
			each(r.pattern, name, m.action)
		}
	}
}

// BodyBytes is how much of the budget for bodies is in use.
func (s *Server) BodyBytes() int64 { return s.bodies.used.Load() }
